"""HTTP services on Kubernetes: when a pod takes requests, how it drains, and what its proxies may do."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from contracts import names, watched_queue
from infra.kubernetes import http_workers, pods
from tests import iam
from tests.infra.declared import Run, run
from tests.kubernetes.entries import GRPC, HTTP_SERVICE, SERVICE, STACK, of_kind, rendered, settings
from tests.kubernetes.test_own_cluster import CREATED
from userdata.agent.proxy import pods as listed
from userdata.agent.proxy import supervisor

SCALING = {"source": "http", "min": 0}
PROXIES = "gpu-spot-dev-ocr-http-proxies-id"


def container(**service: Any) -> dict[str, Any]:
    deployment = of_kind(rendered(service={**HTTP_SERVICE, **service}), "Deployment")
    [result] = deployment["spec"]["template"]["spec"]["containers"]
    return dict(result)


def test_a_pod_is_ready_by_its_path_and_with_grpc_by_its_port() -> None:
    assert container()["readinessProbe"]["httpGet"] == {"path": "/ready", "port": 8000}
    assert container(http=GRPC)["readinessProbe"]["tcpSocket"] == {"port": 8001}
    variables = {item["name"]: item["value"] for item in container()["env"]}
    assert (variables["PORT"], variables["GPU_SPOT_PORT"]) == ("8000", "8000")


@pytest.mark.parametrize(("drain", "seconds"), [(0, http_workers.SEEN_SECONDS), (90, 90), (110, 110)])
def test_a_deleted_pod_serves_what_it_has_before_it_gets_sigterm(drain: int, seconds: int) -> None:
    hook = container(drainSeconds=drain)["lifecycle"]["preStop"]
    assert hook == {"sleep": {"seconds": seconds}}
    assert seconds < pods.DRAIN_SECONDS


def test_a_pod_that_does_not_start_or_hangs_is_restarted_after_the_times_of_the_health_checker() -> None:
    def seconds(probe: dict[str, Any]) -> int:
        return int(probe["periodSeconds"] * probe["failureThreshold"])

    worker = container(health={"graceSeconds": 1201, "stallTimeoutSeconds": 600})
    assert seconds(worker["startupProbe"]) == 1205
    assert seconds(worker["livenessProbe"]) == 600
    for probe in (worker["startupProbe"], worker["livenessProbe"]):
        assert probe["timeoutSeconds"] <= probe["periodSeconds"]
        assert probe["terminationGracePeriodSeconds"] < pods.DRAIN_SECONDS
    assert worker["livenessProbe"]["httpGet"] == worker["readinessProbe"]["httpGet"]


def disruption(**service: Any) -> list[dict[str, Any]]:
    changed = {**HTTP_SERVICE, **service}
    [pool] = [
        item
        for item in rendered(service=changed)
        if item["kind"] == "NodePool" and item["metadata"]["name"].endswith("ocr")
    ]
    return list(pool["spec"]["disruption"]["budgets"])


def test_no_node_is_taken_while_the_worker_of_the_last_one_loads() -> None:
    """Karpenter ignores disruption budgets of pods when it replaces nodes that have drifted."""
    assert disruption() == [{"nodes": "0", "reasons": ["Drifted"]}, {"nodes": "1"}]
    capacity = {**SERVICE["capacity"], "instanceTypes": ["g6.12xlarge"]}
    assert disruption(capacity=capacity)[0]["reasons"] == ["Drifted", "Underutilized"]


def test_a_roll_out_takes_no_worker_where_there_is_room_for_one_more() -> None:
    def changed(scaling: dict[str, Any] | None = None, **capacity: Any) -> tuple[int, bool]:
        service = {**HTTP_SERVICE, "scaling": scaling, "capacity": {**SERVICE["capacity"], **capacity}}
        update = of_kind(rendered(service=service), "Deployment")["spec"]["strategy"]["rollingUpdate"]
        warned = any(
            "ends a worker before its successor" in line for line in settings(service=service).warnings()
        )
        return update["maxUnavailable"], warned

    assert changed() == (0, False)
    assert changed(fallback={"enabled": False}) == (0, False)  # it waits for Spot
    assert changed(target=8, fallback={"enabled": False}) == (1, True)
    assert changed(SCALING) == (0, False)
    assert changed(SCALING, fallback={"enabled": False}) == (1, True)  # KEDA may use all of it


def test_a_short_drain_is_warned_of() -> None:
    [line] = [
        line
        for line in settings(service={**HTTP_SERVICE, "drainSeconds": 0}).warnings()
        if "drainSeconds" in line
    ]
    assert "a deleted pod gets SIGTERM" in line


def test_only_what_probes_do_not_replace_has_no_effect() -> None:
    health = {"graceSeconds": 1200, "stallTimeoutSeconds": 600, "maxUnavailablePercent": 10}
    lines = settings(service={**HTTP_SERVICE, "health": health}).warnings()
    [line] = [line for line in lines if "no effect on Kubernetes" in line]
    assert "services[0].health.maxUnavailablePercent" in line


def test_proxies_see_a_deletion_before_the_hook_ends_and_a_new_pod_before_an_old_one_goes() -> None:
    lost = listed.WATCH_SECONDS + listed.SPARE_SECONDS
    again = listed.DISCOVER_SECONDS + 2 * listed.TIMEOUT_SECONDS  # the API has two addresses
    assert lost + again + supervisor.SAMPLE_SECONDS <= http_workers.SEEN_SECONDS
    spec = of_kind(rendered(service=HTTP_SERVICE), "Deployment")["spec"]
    assert spec["minReadySeconds"] == http_workers.SEEN_SECONDS


def test_a_drain_has_an_effect_for_http_only() -> None:
    def ignored(**service: Any) -> bool:
        return any("drainSeconds: no effect" in line for line in settings(service=service).warnings())

    assert ignored()
    assert not ignored(**HTTP_SERVICE)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Run:
    raw = copy.deepcopy(STACK)
    raw["gpu-spot:services"] = [{**SERVICE, **HTTP_SERVICE, "scaling": SCALING}]
    raw["gpu-spot:training"] = []
    raw["gpu-spot:kubernetes"] = CREATED
    path = tmp_path_factory.mktemp("http") / "Pulumi.http.yaml"
    path.write_text(yaml.safe_dump({"config": raw}))
    return run("known", path, "dev")


def test_the_proxies_list_the_pods_of_the_namespace_and_nothing_else(known: Run) -> None:
    [entry] = [one for one in known.of("AccessEntry").values() if "kubernetesGroups" in one]
    [binding] = [one["inputs"] for one in known.declared if one["type"].endswith(":RoleBinding")]
    assert entry["kubernetesGroups"] == [subject["name"] for subject in binding["subjects"]]
    assert not entry["kubernetesGroups"][0].startswith(("system:", "eks:", "aws:", "amazon:", "iam:"))
    [role] = [
        one["inputs"] for one in known.declared if one["type"].endswith(":Role") and "rules" in one["inputs"]
    ]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    assert role["metadata"]["namespace"] == "gpu-spot-dev"
    settings_of_proxies = known.agent("ocr-proxies")["proxy"]
    assert settings_of_proxies["pods"]["namespace"] == "gpu-spot-dev"
    assert settings_of_proxies["pods"]["cluster"]
    assert settings_of_proxies.get("maxSlots", 1) == 1


def test_the_cluster_admits_proxies_to_workers_and_to_its_api(known: Run) -> None:
    admitted = {
        (rule["securityGroupId"], int(rule["fromPort"]), int(rule["toPort"]))
        for rule in known.of("SecurityGroupIngressRule").values()
        if rule.get("referencedSecurityGroupId") == PROXIES
    }
    assert {ports[1:] for ports in admitted} == {(8000, 8000), (443, 443)}
    assert len({group for group, *_ in admitted}) == 1


def test_a_preview_of_an_existing_cluster_knows_the_same_entry(tmp_path: Path) -> None:
    raw = copy.deepcopy(STACK)
    raw["gpu-spot:services"], raw["gpu-spot:training"] = [{**SERVICE, **HTTP_SERVICE}], []
    path = tmp_path / "Pulumi.http.yaml"
    path.write_text(yaml.safe_dump({"config": raw}))
    [entry] = run("unknown", path, "dev").of("AccessEntry").values()
    assert entry["clusterName"] == "research"
    assert entry["kubernetesGroups"] == [http_workers.proxies_group("dev", "ocr")]


def test_it_has_an_address_alarms_and_is_watched(known: Run) -> None:
    [balancer] = known.of("LoadBalancer").values()
    assert balancer["internal"]
    alarms = " ".join(known.of("MetricAlarm"))
    assert "ocr-http-load-balancer-errors" in alarms
    assert "ocr-http-proxies-unreadable" in alarms


def test_its_row_is_on_the_dashboard(known: Run) -> None:
    body = json.loads(known.the("Dashboard", "board")["dashboardBody"])
    titles = [widget["properties"]["title"] for widget in body["widgets"]]
    assert titles[:2] == ["ocr: requests per minute", "ocr: requests at proxies"]


def test_keda_scales_it_by_the_requests_at_its_proxies(known: Run) -> None:
    [scaled] = [one["inputs"]["spec"] for one in known.declared if one["type"].endswith(":ScaledObject")]
    [trigger] = scaled["triggers"]
    metadata = trigger["metadata"]
    assert (metadata["metricName"], metadata["targetMetricValue"]) == ("QueueWorkers", "1")
    assert (metadata["dimensionName"], metadata["dimensionValue"]) == (
        "group;stack;service",
        "ocr;dev;queues",
    )
    assert scaled["minReplicaCount"] == 0
    watched = known.the("Function", "queues")["environment"]["variables"][names.ENV_QUEUES]
    [queue] = watched_queue.parse(watched)
    assert (queue.group, queue.kind, queue.requests_per_worker) == ("ocr", watched_queue.HTTP, 16)


def test_workers_without_a_queue_may_not_change_their_pods() -> None:
    items = rendered(service={**HTTP_SERVICE, "scaling": SCALING})
    assert not [item for item in items if item["kind"] == "ValidatingAdmissionPolicy"]
    assert {rule["verbs"][0] for item in items if item["kind"] == "Role" for rule in item["rules"]} == {
        "list"
    }
    [worker] = of_kind(items, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert {mount["name"] for mount in worker["volumeMounts"]} == {"run", "tmp"}
    assert "replicas" not in of_kind(items, "Deployment")["spec"]  # each update would reset it


def test_proxies_of_pods_may_not_list_instances(known: Run) -> None:
    documents = [json.loads(known.the("RolePolicy", "ocr-proxies")["policy"])]
    assert "ec2:DescribeInstances" not in iam.allowed_actions(documents)
    assert "dynamodb:PutItem" in iam.allowed_actions(documents)
