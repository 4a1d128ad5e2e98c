"""An address for HTTP workers: what may connect to what, what proxies run, alarms, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from contracts import codec, names
from contracts.agent.config import HttpProxy, HttpWorkers
from contracts.group import config as group_config
from contracts.group import scaling_settings
from contracts.registry import item as registry_item
from contracts.registry import proxy_state
from infra.components.http.proxies import PACKAGES
from infra.settings import load_settings
from tests.iam import Request, allows
from tests.infra.declared import Run, edited_stack, heading, in_service, shipped
from tests.infra.test_refusals import settings

CERTIFICATE = "arn:aws:acm:us-west-2:123456789012:certificate/00000000-0000-0000-0000-000000000000"
ADDRESS: dict[str, Any] = {"port": 8000}
PUBLIC: dict[str, Any] = {
    **{"port": 8000, "public": True, "allowedSources": ["0.0.0.0/0"], "certificateArn": CERTIFICATE},
    **{"domain": "chat.example.com", "hostedZoneId": "Z0123", "protocol": "grpc", "accessLogDays": 7},
    **{"concurrency": 64, "idleTimeout": 300, "retryPaths": ["/v1/"], "proxies": {"count": 3}},
}
NAME = "gpu-spot-dev-inference-http"


SERVED = in_service(command=["serve"], slotsPerGpu=2)


@pytest.fixture(scope="module")
def internal() -> Run:
    return edited_stack({**SERVED, **in_service(http=ADDRESS)})


@pytest.fixture(scope="module")
def public() -> Run:
    # With NAT, so that its subnets are others than those of instances.
    return edited_stack({**SERVED, **in_service(http=PUBLIC), "network.egress": "nat-gateway"})


def rules(of: Run, kind: str, group: str) -> set[tuple[str, int, int]]:
    """Return source or target, first and last port of a security group's rules."""
    return {
        (source, int(rule["fromPort"]), int(rule["toPort"]))
        for rule in of.of(kind).values()
        for source in [rule.get("referencedSecurityGroupId") or rule["cidrIpv4"]]
        if rule["securityGroupId"] == f"gpu-spot-dev-inference-{group}-id"
    }


def test_each_admits_the_one_before_it_only(internal: Run, public: Run) -> None:
    workers, balancer, proxies = "gpu-spot-dev-workers-id", f"{NAME}-id", f"{NAME}-proxies-id"
    assert rules(internal, "SecurityGroupIngressRule", "http") == {(workers, 80, 80)}
    assert rules(public, "SecurityGroupIngressRule", "http") == {(workers, 443, 443), ("0.0.0.0/0", 443, 443)}
    for of in (internal, public):
        assert rules(of, "SecurityGroupEgressRule", "http") == {
            (proxies, port, port) for port in (8080, 8081)
        }
        assert rules(of, "SecurityGroupIngressRule", "http-proxies") == {
            (balancer, port, port) for port in (8080, 8081)
        }
        # Two workers on the one GPU of an instance, and the agent's check.
        checks = {(proxies, 8000, 8001), (proxies, 8900, 8900)}
        assert rules(of, "SecurityGroupIngressRule", "http-workers") == checks
        for side in ("primary", "fallback"):
            groups = of.the("LaunchTemplate", f"inference-{side}")["vpcSecurityGroupIds"]
            assert groups == [workers, f"{NAME}-workers-id"]


def test_the_load_balancer_is_internal_by_default_and_in_two_zones(internal: Run, public: Run) -> None:
    [inside], [outside] = internal.of("LoadBalancer").values(), public.of("LoadBalancer").values()
    subnets = {of["internal"]: [name.split("-")[3] for name in of["subnets"]] for of in (inside, outside)}
    zones = len(shipped("dev").settings["gpu-spot:network"]["zones"])
    assert subnets == {True: ["private"] * zones, False: ["public"] * zones}
    for one, run_ in ((inside, internal), (outside, public)):
        assert one["dropInvalidHeaderFields"] is True
        assert one["preserveHostHeader"] is True
        assert one["securityGroups"] == [f"{NAME}-id"]
        assert one["accessLogs"]["bucket"] in {f"{run_.physical(name)}-id" for name in run_.of("Bucket")}
    # Longer than a wait and a silence at the proxies.
    assert (inside["idleTimeout"], outside["idleTimeout"]) == (130, 610)


def test_only_tls_is_public_and_the_name_leads_to_the_load_balancer(internal: Run, public: Run) -> None:
    [plain], [encrypted] = internal.of("Listener").values(), public.of("Listener").values()
    assert (plain["protocol"], plain["port"], plain.get("certificateArn")) == ("HTTP", 80, None)
    assert (encrypted["protocol"], encrypted["port"]) == ("HTTPS", 443)
    assert encrypted["certificateArn"] == CERTIFICATE
    assert "TLS13-1-2" in encrypted["sslPolicy"]
    [record] = public.of("Record").values()
    [alias] = record["aliases"]
    assert (record["name"], record["zoneId"], alias["name"]) == ("chat.example.com", "Z0123", f"{NAME}.elb")
    assert internal.exports["addresses"] == {"inference": f"http://{NAME}.elb"}
    assert public.exports["addresses"] == {"inference": "https://chat.example.com"}


def test_proxies_drain_before_they_end_and_grpc_is_carried_by_http_2(internal: Run, public: Run) -> None:
    [inside], [outside] = internal.of("TargetGroup").values(), public.of("TargetGroup").values()
    assert (inside["protocolVersion"], outside["protocolVersion"]) == ("HTTP1", "HTTP2")
    for one in (inside, outside):
        assert (one["port"], one["targetType"], one["deregistrationDelay"]) == (8080, "instance", 300)
        assert one["healthCheck"]["path"] == names.PROXY_HEALTH_PATH
        assert one["loadBalancingAlgorithmType"] == "least_outstanding_requests"
    group = public.the("Group", "inference-proxies")
    assert (group["minSize"], group["desiredCapacity"], group["maxSize"]) == (3, 3, 6)
    assert group["targetGroupArns"] == [f"arn:{NAME}"]
    assert group["healthCheckType"] == "ELB"
    preferences = group["instanceRefresh"]["preferences"]
    assert preferences["minHealthyPercentage"] == 100 < preferences["maxHealthyPercentage"]
    distribution = group["mixedInstancesPolicy"]["instancesDistribution"]
    assert distribution["onDemandPercentageAboveBaseCapacity"] == 100
    assert len(group["vpcZoneIdentifiers"]) >= 2


def test_nothing_takes_a_proxy_for_a_worker(internal: Run) -> None:
    template = internal.the("LaunchTemplate", "inference-proxies")
    for specification in template["tagSpecifications"]:
        assert names.TAG_GROUP not in specification["tags"]
        assert specification["tags"][names.TAG_PROXY] == "inference"
    tags = {tag["key"] for tag in internal.the("Group", "inference-proxies")["tags"]}
    assert names.TAG_GROUP not in tags
    assert {names.TAG_STACK, names.TAG_PROXY} <= tags
    # Neither the watcher, which reports workers, nor metrics of GPUs.
    files = {one["path"]: one["content"] for one in internal.cloud_init("inference-proxies")["write_files"]}
    assert 'UNITS="gpu-spot-proxy.service"' in files["/etc/gpu-spot/boot.env"]


def test_a_proxy_is_configured_and_installs_from_the_images_repositories(public: Run) -> None:
    found = codec.parse(HttpProxy, public.agent("inference-proxies")["proxy"])
    assert found == HttpProxy(
        HttpWorkers(8000, is_grpc=True),
        max_workers=found.max_workers,
        max_slots=2,
        concurrency=64,
        proxies=3,
        idle_timeout_seconds=300,
        retry_paths=("/v1/",),
        is_grpc=True,
    )
    service = load_settings(public.settings).services[0]
    assert found.max_workers == 2 * service.capacity.maximum
    assert public.agent("inference-primary")["service"]["http"]["port"] == 8000
    boot = public.cloud_init("inference-proxies")
    assert boot["packages"] == list(PACKAGES)
    assert boot["runcmd"] == [["systemctl", "start", "rsyslog.service"]]
    assert "packages" not in public.cloud_init("inference-primary")
    assert "al2023-ami" in public.the("LaunchTemplate", "inference-proxies")["imageId"]


def test_a_proxy_may_find_workers_and_write_its_own_item_only(internal: Run) -> None:
    policy = internal.policy("inference-proxies")
    by_sid = {one["Sid"]: one for one in policy["Statement"]}
    assert by_sid["FindWorkers"]["Action"] == ["ec2:DescribeInstances"]
    report = by_sid["ReportRequests"]
    assert report["Action"] == ["dynamodb:PutItem"]
    [key] = report["Condition"]["ForAllValues:StringEquals"]["dynamodb:LeadingKeys"]
    arn = "arn:aws:ec2:us-west-2:123456789012:instance/i-0"
    own = proxy_state.key("inference", arn)[names.REGISTRY_KEY]["S"]
    assert key.replace("${ec2:SourceInstanceARN}", arn) == own
    assert not {"ReportWorkers", "ListBuckets", "PullImages", "CompleteHooks"} & by_sid.keys()


def test_only_load_balancers_of_the_account_write_access_logs(public: Run) -> None:
    bucket = "gpu-spot-dev-inference-access-logs"
    policy = json.loads(public.the("BucketPolicy", "inference-access-logs")["policy"])
    [write] = [one for one in policy["Statement"] if one["Effect"] == "Allow"]
    assert write["Principal"] == {"Service": "logdelivery.elasticloadbalancing.amazonaws.com"}
    assert (write["Action"], write["Resource"]) == (
        ["s3:PutObject"],
        [f"arn:{bucket}/AWSLogs/123456789012/*"],
    )
    of_account = "arn:aws:elasticloadbalancing:us-west-2:123456789012:loadbalancer/*"
    assert write["Condition"] == {"ArnLike": {"aws:SourceArn": of_account}}
    [rule] = public.the("BucketServerSideEncryptionConfiguration", "inference-access-logs")["rules"]
    assert rule["applyServerSideEncryptionByDefault"]["sseAlgorithm"] == "AES256"
    [_, expire] = public.the("BucketLifecycleConfiguration", "inference-access-logs")["rules"]
    assert expire["expiration"]["days"] == 7


def test_every_alarm_of_an_address_has_a_heading_and_a_metric_by_its_dimensions(internal: Run) -> None:
    added = internal.alarms().keys() - shipped("dev").alarms().keys()
    of_address = {name: internal.alarms()[name] for name in added if "-http-" in name}
    assert of_address.keys() == {
        f"inference-http-{part}"
        for part in (
            *("load-balancer-errors", "proxies-unhealthy", "no-worker", "refused", "worker-errors", "cut"),
            "proxies-unreadable",
        )
    }
    assert all(heading(name) == f"<group>{name.removeprefix('inference')}" for name in of_address)
    for alarm in of_address.values():
        for metric in (one["metric"] for one in alarm.get("metricQueries", ()) if "metric" in one):
            assert metric["dimensions"] == {"group": "inference", "stack": "dev"}
            assert metric["namespace"] == names.INSTANCE_NAMESPACE
    # What is not known counts as broken.
    breaching = {name for name, one in of_address.items() if one["treatMissingData"] == "breaching"}
    assert breaching == {
        f"inference-http-{part}" for part in ("proxies-unhealthy", "proxies-unreadable", "no-worker")
    }
    unreadable = of_address["inference-http-proxies-unreadable"]
    assert unreadable["dimensions"] == {"group": "inference", "stack": "dev", "service": names.SERVICE_QUEUES}
    assert (unreadable["metricName"], unreadable["namespace"]) == (
        names.METRIC_PROXIES_UNREADABLE,
        names.METRIC_NAMESPACE,
    )


def test_without_an_address_nothing_is_added(internal: Run) -> None:
    plain = {name for _, name in shipped("dev").identities()}
    assert not [name for name in plain if "http" in name or "proxies" in name]
    changed = {name for _, name in internal.identities()} - plain
    # The queue watcher adds up what the proxies count.
    own = ("inference-", "queues")
    # It runs in the VPC, where a function has no way out without a NAT gateway.
    assert {one for one in changed if not one.startswith(own)} == {"endpoint-ec2", "endpoints-in"}


def test_the_example_for_triton_is_accepted() -> None:
    entry = yaml.safe_load((Path(__file__).parents[2] / "examples/http-service/triton.yaml").read_text())
    [service] = settings("dev", {"gpu-spot:services": [entry]}).services
    assert service.http is not None
    assert service.http.workers.is_grpc


@pytest.mark.parametrize(
    ("keys", "seconds"),
    [
        ({"http": ADDRESS}, 30),
        ({"queue": {"kind": "sqs"}}, 30),
        ({"http": ADDRESS, "drainSeconds": 0}, 0),
        ({"http": ADDRESS, "drainSeconds": 90}, 90),
        ({}, 0),
    ],
)
def test_workers_with_requests_have_half_a_minute_to_end_them(keys: dict[str, Any], seconds: int) -> None:
    entry = {"name": "chat", "command": ["serve"], **keys}
    entry["capacity"] = {"kind": "mixed-asg", "target": 1, "instanceTypes": ["g6.xlarge"]}
    [service] = settings("dev", {"gpu-spot:services": [entry]}).services
    assert service.drain_seconds == seconds


def test_a_long_name_still_fits_a_load_balancer() -> None:
    named = in_service(name="large-language-model", command=["serve"], http=ADDRESS)
    [balancer] = edited_stack(named, mode="unknown").of("LoadBalancer").values()
    assert balancer["namePrefix"] == "gpu-s-"


HTTP = {"port": 8000, "concurrency": 8}
INSTANCES = "arn:aws:ec2:us-west-2:123456789012:instance/"


@pytest.fixture(scope="module")
def chat() -> Run:
    return edited_stack(in_service(command=["serve"], http=HTTP, scaling={"source": "http"}))


def test_the_queue_watcher_reads_the_proxies(chat: Run) -> None:
    variables = chat.the("Function", "queues")["environment"]["variables"]
    assert json.loads(variables[names.ENV_QUEUES]) == [["inference", "http", "inference", "", "", 0]]
    assert variables[names.ENV_INSTANCE_ARNS].endswith("instance/")


def test_it_may_read_the_items_of_instances_and_write_those_of_queues_only(chat: Run) -> None:
    policy = chat.policy("queues-function")
    found = {one["Sid"]: one for one in policy["Statement"]}
    assert found["FindProxies"]["Action"] == ["ec2:DescribeInstances"]
    [table] = found["ReadProxies"]["Resource"]
    worker = registry_item.partition("inference", f"{INSTANCES}i-1")
    proxy = registry_item.partition(names.proxy_partition("inference"), f"{INSTANCES}i-2")
    for action, key, may in (
        ("BatchGetItem", worker, True),
        ("BatchGetItem", proxy, True),
        ("BatchGetItem", names.release_partition("inference"), False),
        ("PutItem", names.queue_partition("inference"), True),
        ("PutItem", proxy, False),
        ("UpdateItem", worker, False),
    ):
        asked = Request(f"dynamodb:{action}", table, {"dynamodb:LeadingKeys": [key]})
        assert allows([policy], asked) is may, (action, key)


@pytest.mark.parametrize("function", ["scaler", "health-checker"])
def test_scaler_and_health_checker_read_what_the_watcher_wrote(chat: Run, function: str) -> None:
    policy = chat.policy(f"{function}-function")
    [table] = next(one["Resource"] for one in policy["Statement"] if one["Sid"] == "ReadWorkers")
    keys = {"dynamodb:LeadingKeys": [names.queue_partition("inference")]}
    asked = Request("dynamodb:BatchGetItem", table, keys)
    assert allows([policy], asked)


def test_the_functions_know_the_concurrency_of_a_worker(chat: Run) -> None:
    config = group_config.parse(chat.the("Parameter", "inference-config")["insecureValue"])
    assert config.http_concurrency == 8
    scaling = scaling_settings.parse(chat.the("Parameter", "inference-scaling")["insecureValue"])
    assert scaling.log is None


def test_without_http_nothing_is_different() -> None:
    assert "queues" not in shipped("dev").of("Function")
    text = shipped("dev").the("Parameter", "inference-config")["insecureValue"]
    assert "httpConcurrency" not in text
