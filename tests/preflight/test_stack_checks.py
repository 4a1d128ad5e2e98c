"""Checks of a stack's region: types, images, endpoints, names, cost. Each check reports its problem."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from typing import Any

import pytest

from gpu_spot.preflight.checks import (
    endpoints,
    images,
    monthly_cost,
    names,
    offerings,
    quotas,
    request_logs,
    secrets,
    vcpus,
)
from gpu_spot.preflight.stack import Declared, Stack
from pulumi_on_moto import AwsClients
from tests.infra import training
from tests.oracles.log_patterns import matched
from tests.preflight.worlds import (
    declared,
    error,
    offered,
    results_of,
    service,
    stack,
    statuses,
    stub_operation,
    stub_quotas,
)

PARAMETER = "/images/mine"
TEMPLATE = declared(
    "aws:ec2/launchTemplate:LaunchTemplate",
    imageId=f"resolve:ssm:{PARAMETER}",
    blockDeviceMappings=[{"deviceName": "/dev/sda1", "ebs": {"volumeSize": 125}}],
)


def test_missing_zones_and_types_are_reported(clients: AwsClients) -> None:
    offered(clients, "g6.xlarge@us-west-2a", "g5.2xlarge@us-west-2c")
    found = results_of(offerings.run, stack(), clients)
    assert statuses(found) == {"web": "ok", "web in us-west-2b": "warning", "web: g5.2xlarge": "warning"}
    assert found[0].finding == "1 of 4 capacity pools (type and zone) are offered"


def test_a_type_that_the_region_does_not_have_fails(clients: AwsClients) -> None:
    offered(clients, "g6.xlarge@us-west-2a", "g6.xlarge@us-west-2b")
    found = statuses(results_of(offerings.run, stack(), clients))
    assert found == {"web": "ok", "web: g5.2xlarge": "failure"}


def test_a_group_without_any_pool_fails(clients: AwsClients) -> None:
    offered(clients)
    assert statuses(results_of(offerings.run, stack(), clients)) == {"web": "failure"}


def test_a_zone_that_the_account_does_not_have_fails(clients: AwsClients) -> None:
    offered(clients, "g6.xlarge@us-west-2a", "g5.2xlarge@us-west-2h")
    network = {"cidr": "10.0.0.0/16", "zones": ["us-west-2a", "us-west-2h"]}
    found = statuses(results_of(offerings.run, stack(network=network), clients))
    assert found == {"us-west-2h": "failure", "web": "ok"}


def test_a_group_that_is_too_large_is_to_be_divided(clients: AwsClients) -> None:
    large = {"max": quotas.MAX_SLOTS + 1}
    [found] = results_of(quotas.sizes, stack(large), clients)
    assert (found.subject, found.status) == ("web", "warning")
    assert found.finding.startswith("max is 5,001: ")
    assert found.advice == "split the group: at most 5,000 slots per group (research/scale.md)"
    assert not results_of(quotas.sizes, stack({"max": quotas.MAX_SLOTS}), clients)


def test_a_group_without_a_max_is_as_large_as_twice_its_target(clients: AwsClients) -> None:
    assert not results_of(quotas.sizes, stack({"target": 2500}), clients)
    assert statuses(results_of(quotas.sizes, stack({"target": 2501}), clients)) == {"web": "warning"}


def image(clients: AwsClients, *, kind: str = "aws:ec2:image", **given: Any) -> str:
    """Put an image behind the parameter."""
    described = {
        "ImageId": "ami-0123456789abcdef0",
        "Name": "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) 20261101",
        "Architecture": "x86_64",
        "State": "available",
        "RootDeviceName": "/dev/sda1",
        "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 75}}],
    }
    stub_operation(clients, "ec2", "DescribeImages", {"Images": [described | given]})
    value = {"Name": PARAMETER, "Value": "ami-0123456789abcdef0", "DataType": kind}
    stub_operation(clients, "ssm", "GetParameter", {"Parameter": value})
    return PARAMETER


def of_image(clients: AwsClients, **work: Any) -> list[tuple[str, str]]:
    only = service({"instanceTypes": ["g6.xlarge"], "ami": PARAMETER}, **work)
    wanted = stack(declared=[TEMPLATE], services=[only])
    return [(one.status, one.finding) for one in results_of(images.run, wanted, clients)]


def test_a_maximum_price_does_not_bound_the_fallback(clients: AwsClients) -> None:
    [found] = results_of(quotas.sizes, stack({"maxPrice": 0.25}), clients)
    assert (found.status, found.finding.startswith("maxPrice 0.25 bounds Spot alone")) == ("warning", True)
    assert not results_of(quotas.sizes, stack({"maxPrice": 0.25, "fallback": {"enabled": False}}), clients)


@pytest.mark.parametrize(("year", "statuses_"), [("2020", ["ok", "warning"]), ("2999", ["ok"])])
def test_a_deprecated_image_is_named(clients: AwsClients, year: str, statuses_: list[str]) -> None:
    image(clients, DeprecationTime=f"{year}-01-01T00:00:00.000Z")
    assert [status for status, _ in of_image(clients)] == statuses_


def test_an_image_that_fits_is_named(clients: AwsClients) -> None:
    image(clients)
    [(status, found)] = of_image(clients)
    assert (status, "Ubuntu 24.04" in found) == ("ok", True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"Architecture": "arm64"}, "is for arm64, g6.xlarge is x86_64"),
        ({"State": "deregistered"}, "is deregistered"),
        ({"RootDeviceName": "/dev/xvda"}, "root device is /dev/xvda; the launch template sets /dev/sda1"),
        (
            {"BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 200}}]},
            "root volume has 200 GiB, rootVolumeGiB is 125",
        ),
        ({"kind": "text"}, "the parameter's data type is text; Auto Scaling requires aws:ec2:image"),
    ],
)
def test_an_image_that_does_not_fit_is_found(clients: AwsClients, given: dict[str, Any], said: str) -> None:
    image(clients, **given)
    [(status, found), *_] = of_image(clients)
    assert status == "failure"
    assert said in found


def test_a_missing_parameter_and_a_missing_image_are_found(clients: AwsClients) -> None:
    assert [status for status, _ in of_image(clients)] == ["failure"]
    clients("ssm").put_parameter(Name=PARAMETER, Value="ami-0123456789abcdef9", Type="String")
    assert [found for _, found in of_image(clients)][-1] == "ami-0123456789abcdef9 does not exist"


@pytest.mark.parametrize(
    ("command", "name", "status"),
    [
        (["python", "serve.py"], None, "failure"),
        (["python3", "serve.py"], None, None),
        (["python3", "serve.py"], "an image of ours", "not known"),
        (["./serve"], None, None),
    ],
)
def test_the_python_of_a_command_is_checked(
    clients: AwsClients, command: list[str], name: str | None, status: str | None
) -> None:
    image(clients, **({"Name": name} if name else {}))
    [_, *rest] = of_image(clients, command=command)
    assert [one for one, _ in rest] == ([status] if status else [])


OF_REGION = "com.amazonaws.us-west-2"


def services(clients: AwsClients, zones: dict[str, list[str]]) -> None:
    given = [{"ServiceName": f"{OF_REGION}.{name}", "AvailabilityZones": at} for name, at in zones.items()]
    stub_operation(clients, "ec2", "DescribeVpcEndpointServices", {"ServiceDetails": given})


def endpoint(name: str, kind: str = "Interface") -> Any:
    inputs = {"serviceName": f"{OF_REGION}.{name}", "vpcEndpointType": kind}
    return declared("aws:ec2/vpcEndpoint:VpcEndpoint", **inputs)


def test_an_endpoint_must_be_in_all_zones(clients: AwsClients) -> None:
    wanted = stack(declared=[endpoint("sqs"), endpoint("logs"), endpoint("s3", "Gateway"), endpoint("new")])
    services(clients, {"sqs": ["us-west-2a"], "logs": ["us-west-2a", "us-west-2b"], "s3": []})
    found = results_of(endpoints.run, wanted, clients)
    assert [(one.subject.rpartition(".")[2], one.status, one.finding) for one in found] == [
        ("sqs", "failure", "no endpoint in us-west-2b"),
        ("new", "failure", "endpoint not available in this region"),
    ]


def test_existing_endpoints_are_ok(clients: AwsClients) -> None:
    services(clients, {"sqs": ["us-west-2a", "us-west-2b"]})
    [found] = results_of(endpoints.run, stack(declared=[endpoint("sqs")]), clients)
    assert found.status == "ok"


def test_efs_zones_are_reported_as_unknown(clients: AwsClients) -> None:
    wanted = stack(declared=[declared("aws:efs/mountTarget:MountTarget")])
    assert statuses(results_of(endpoints.run, wanted, clients)) == {"EFS": "not known"}


NAMED = [
    declared("aws:ssm/parameter:Parameter", name="/gpu-spot/dev/groups/web/target"),
    declared("aws:cloudwatch/logGroup:LogGroup", name="/gpu-spot/dev/instances/web"),
    declared("aws:cloudwatch/logGroup:LogGroup"),
]


def test_available_names_are_ok(clients: AwsClients) -> None:
    clients("ssm").put_parameter(Name="/gpu-spot/dev2/groups/web/target", Value="1", Type="String")
    clients("logs").create_log_group(logGroupName="/gpu-spot/dev/instances/web2")
    assert statuses(results_of(names.run, stack(declared=NAMED), clients)) == {"stack dev": "ok"}


def test_names_of_another_owner_are_conflicts(clients: AwsClients) -> None:
    clients("ssm").put_parameter(Name="/gpu-spot/dev/groups/web/target", Value="1", Type="String")
    clients("logs").create_log_group(logGroupName="/gpu-spot/dev/instances/web")
    found = statuses(results_of(names.run, stack(declared=NAMED), clients))
    assert found["/gpu-spot/dev/groups/web/target"] == "failure"
    assert found["/gpu-spot/dev/instances/web"] == "failure"


def test_a_stack_that_is_up_finds_its_own_names(clients: AwsClients) -> None:
    parameter = {"Name": "/gpu-spot/dev/groups/web/target", "Value": "1", "Type": "String"}
    clients("ssm").put_parameter(**parameter, Tags=[{"Key": "gpu-spot:stack", "Value": "dev"}])
    log_group = "/gpu-spot/dev/instances/web"
    clients("logs").create_log_group(logGroupName=log_group, tags={"gpu-spot:stack": "dev"})
    assert statuses(results_of(names.run, stack(declared=NAMED), clients)) == {"stack dev": "warning"}


ALWAYS = [
    declared("aws:ec2/natGateway:NatGateway"),
    declared("aws:ec2/eip:Eip"),
    declared("aws:ec2/vpcEndpoint:VpcEndpoint", subnetIds=["a", "b"]),
    declared("aws:ec2/vpcEndpoint:VpcEndpoint", routeTableIds=["a"]),
]


def test_permanent_costs_are_added_up(clients: AwsClients) -> None:
    warm = {"fallback": {"warmInstances": 2}}
    found = results_of(monthly_cost.run, stack(warm, ALWAYS), clients)
    findings = {one.subject: one.finding for one in found}
    assert findings["NAT gateways"] == "1 × $32.85 = $32.85"
    assert findings["interface endpoints × zones"] == "2 × $7.30 = $14.60"
    assert findings["GiB of stopped warm instances"] == "250 × $0.08 = $20.00"
    # 32.85 + 3.65 + 14.60 + 20.00
    assert findings["total"].startswith("$71 without workers (list prices of ")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("m7g.large", ("ok", "3 × $59.57 = $178.70")),
        ("t3.medium", ("ok", "3 × $30.37 = $91.10")),
        ("m7i.4xlarge", ("ok", "3 × $588.67 = $1766.02")),
        ("m9z.large", ("not known", "not priced")),
    ],
)
def test_a_cluster_has_permanent_costs(kind: str, expected: tuple[str, str], clients: AwsClients) -> None:
    cluster = [
        declared("aws:eks/cluster:Cluster", version="1.36"),
        declared("aws:ec2/launchTemplate:LaunchTemplate", blockDeviceMappings=[{"ebs": {"volumeSize": 30}}]),
        declared("aws:eks/nodeGroup:NodeGroup", instanceTypes=[kind], scalingConfig={"desiredSize": 3}),
    ]
    costs = results_of(monthly_cost.run, stack(declared=cluster), clients)
    found = {one.subject: (one.status, one.finding) for one in costs}
    assert found["EKS control planes"] == ("ok", "1 × $73.00 = $73.00")
    assert found[f"system nodes {kind}"] == expected
    assert found["GiB of system nodes"] == ("ok", "90 × $0.08 = $7.20")


def test_a_budget_below_permanent_costs_is_a_warning(clients: AwsClients) -> None:
    for budget, status in ((50, "warning"), (60, "ok")):
        wanted = stack({"fallback": {"enabled": False}}, ALWAYS, monitoring={"monthlyBudgetUsd": budget})
        assert results_of(monthly_cost.run, wanted, clients)[-1].status == status


def test_the_secret_of_an_existing_broker_is_checked(clients: AwsClients) -> None:
    queue = {"kind": "rabbitmq", "existing": {"secret": "queues/ocr"}}
    wanted = stack(services=[service(command=["serve"], queue=queue)])
    assert statuses(results_of(secrets.queues, wanted, clients)) == {"queue of web": "failure"}
    clients("secretsmanager").create_secret(Name="queues/ocr", SecretString="amqps://a:b@c")
    assert statuses(results_of(secrets.queues, wanted, clients)) == {"queue of web": "ok"}


def test_a_secret_without_a_value_or_in_deletion_cannot_be_read(clients: AwsClients) -> None:
    wanted = stack(services=[service(command=["serve"], secrets={"TOKEN": "hub", "KEY": "ssm:/hub/key"})])
    manager, ssm = clients("secretsmanager"), clients("ssm")

    def seen() -> tuple[str, str]:
        found = results_of(secrets.run, wanted, clients)[0]
        return found.status, found.finding

    manager.create_secret(Name="hub")
    assert seen() == ("failure", "secret hub has no value: its user would wait for it")
    manager.put_secret_value(SecretId="hub", SecretString="t")
    assert seen() == ("ok", "secret hub exists")
    manager.delete_secret(SecretId="hub")
    assert seen() == ("failure", "secret hub is scheduled for deletion: its user would wait for it")

    ssm.put_parameter(Name="/hub/key", Value="k", Type="SecureString")
    pages: list[Any] = [{"Parameters": [], "NextToken": "2"}, ssm.describe_parameters()]
    ssm._make_api_call = lambda *_: pages.pop(0)
    assert results_of(secrets.run, wanted, clients)[1].status == "ok"


def test_existing_sqs_queues_and_their_dead_letter_queues_are_checked(clients: AwsClients) -> None:
    queue = {"kind": "sqs", "existing": {"queue": "ocr", "deadLetters": "ocr-dead"}}
    wanted = stack(services=[service(command=["serve"], queue=queue)])

    def seen() -> tuple[str, str]:
        [found] = results_of(secrets.queues, wanted, clients)
        return found.status, found.finding

    assert seen() == ("failure", "queue ocr does not exist in this account and region: workers would exit")
    sqs = clients("sqs")
    url = sqs.create_queue(QueueName="ocr")["QueueUrl"]
    assert seen() == ("failure", "ocr has dead-letter queue none, not ocr-dead")
    dead = sqs.create_queue(QueueName="ocr-dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "9"})
    assert seen() == ("failure", "ocr has a visibility timeout of 9 s: workers would exit")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "10"})
    assert seen() == ("ok", "ocr exists, its dead-letter queue is ocr-dead")


def test_a_broker_is_reported_as_not_included_in_the_total(clients: AwsClients) -> None:
    broker = declared(
        "aws:mq/broker:Broker", hostInstanceType="mq.m7g.large", deploymentMode="SINGLE_INSTANCE"
    )
    found = statuses(results_of(monthly_cost.run, stack(declared=[broker]), clients))
    assert found["broker mq.m7g.large, SINGLE_INSTANCE"] == "not known"


LOG = {"group": "/search", "pattern": "search", "seconds": "$took", "secondsPattern": "[event, took]"}


def request_log(clients: AwsClients, **log: str) -> tuple[str, str]:
    scaling = {"source": "log", "log": {**LOG, **log}}
    [found] = results_of(request_logs.run, stack(services=[service(scaling=scaling)]), clients)
    return found.status, found.finding


def stub_filters(clients: AwsClients) -> None:
    """Let ``TestMetricFilter`` match as the guide describes it."""

    def respond(asked: dict[str, Any]) -> dict[str, Any]:
        pattern, lines = asked["filterPattern"], asked["logEventMessages"]
        if pattern == "[invalid]":
            return error("InvalidParameterException", "Invalid filter pattern")
        found = [(number, line, matched(pattern, line)) for number, line in enumerate(lines, 1)]
        return {
            "matches": [
                {
                    "eventNumber": number,
                    "eventMessage": line,
                    "extractedValues": {key: str(value) for key, value in fields.items()},
                }
                for number, line, fields in found
                if fields is not None
            ]
        }

    stub_operation(clients, "logs", "TestMetricFilter", respond)


def test_a_request_log_is_checked_with_its_newest_lines(clients: AwsClients) -> None:
    stub_filters(clients)
    assert request_log(clients) == ("failure", "log group /search does not exist in this account and region")
    logs = clients("logs")
    logs.create_log_group(logGroupName="/search")
    assert request_log(clients) == ("warning", "log group /search has no line to test the pattern with")
    logs.create_log_stream(logGroupName="/search", logStreamName="one")

    def write(*messages: str) -> None:
        at = int(time.time() * 1000)
        events = [{"timestamp": at, "message": message} for message in messages]
        logs.put_log_events(logGroupName="/search", logStreamName="one", logEvents=events)

    write("health ok")
    assert request_log(clients) == (
        "warning",
        "none of 1 lines matches search: the service would count as idle",
    )
    write("search q", "result soon")
    assert request_log(clients) == (
        "failure",
        "1 of 3 lines are requests, but $took is a number in none of 3 lines with it",
    )
    write("result 0.7")
    assert request_log(clients) == ("ok", "1 of 4 lines are requests, 1 have $took")


def test_a_request_logs_sample_is_tested_instead(clients: AwsClients) -> None:
    stub_filters(clients)
    clients("logs").create_log_group(logGroupName="/search")
    assert request_log(clients, sample="search q") == ("ok", "1 of 1 lines are requests")
    assert request_log(clients, sample="q")[0] == "failure"
    assert request_log(clients, sample="q", pattern="[invalid]") == (
        "failure",
        "invalid pattern: Invalid filter pattern",
    )


def test_secrets_of_tenants_and_repositories_are_checked(clients: AwsClients) -> None:
    tenant = {"name": "ada", "uid": 2001, "cpus": 2, "memoryGiB": 4, "image": f"lab@sha256:{'0' * 64}"}
    tenant |= {"secret": "lab/keys", "registrySecret": "lab/registry"}
    host = {"kind": "mixed-asg", "target": 1, "instanceTypes": ["g5.12xlarge"]}
    job = training.job(capacity={**host, "max": 2}, repositorySecret="code/net")
    shared = [{"name": "lab", "capacity": host, "tenants": [tenant]}]
    checked = stack(sharedHosts=shared, training=[job])
    clients("secretsmanager").create_secret(Name="lab/keys", SecretString="{}")
    assert [
        (result.status, result.key, result.finding.partition(" in ")[0])
        for result in results_of(secrets.run, checked, clients)
    ] == [
        ("failure", "training[0].repositorySecret", "secret code/net does not exist"),
        ("ok", "sharedHosts[0].tenants[0].secret", "secret lab/keys exists"),
        ("failure", "sharedHosts[0].tenants[0].registrySecret", "secret lab/registry does not exist"),
    ]


def of(*declared: Declared) -> Stack:
    return stack(declared=declared, services=[service(command=["serve"], http={"port": 8000})])


def test_proxies_count_for_types_and_quotas(clients: AwsClients) -> None:
    types = ("g6.xlarge", "g5.2xlarge", "c7g.large")
    pools = [f"{name}@us-west-2{letter}" for name in types for letter in "ab"]
    offered(clients, *pools[:-1])
    found = results_of(offerings.run, of(), clients)[-1]
    assert (found.subject, found.status) == ("c7g.large", "warning")
    assert found.key == "services[].http.proxies.instanceType"
    offered(clients, *pools[:-2])
    assert results_of(offerings.run, of(), clients)[-1].status == "failure"

    stub_quotas(clients, defaultdict(lambda: 9999.0, {"L-1216C47A": 3.0}))
    # Two of two vCPUs.
    assert statuses(results_of(vcpus.run, of(), clients))["L-1216C47A"] == "failure"
    assert "L-1216C47A" not in statuses(results_of(vcpus.run, stack(), clients))


def test_load_balancers_and_proxies_cost(clients: AwsClients) -> None:
    disk = {"deviceName": "/dev/xvda", "ebs": {"volumeSize": 10}}
    tags = [{"key": "gpu-spot:proxy", "value": "web"}]
    wanted = of(
        declared("aws:lb/loadBalancer:LoadBalancer", internal=False, subnets=["a", "b"]),
        declared("aws:ec2/launchTemplate:LaunchTemplate", blockDeviceMappings=[disk]),
        declared("aws:autoscaling/group:Group", desiredCapacity=2, tags=tags),
    )
    found = {one.subject: one.finding for one in results_of(monthly_cost.run, wanted, clients)}
    assert found["load balancers"] == "1 × $16.43 = $16.43"
    assert found["proxies c7g.large"] == "2 × $52.92 = $105.85"
    assert found["GiB of proxies"].startswith("20 × ")
    # Of the balancer in each subnet, and of each proxy.
    assert found["public IPv4 addresses"].startswith("4 × ")
