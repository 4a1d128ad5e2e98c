"""A moto account with stubbed operations, and a small stack to check."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from botocore.validate import validate_parameters

from gpu_spot.preflight.account import Account, identify
from gpu_spot.preflight.check_result import Check, CheckResult
from gpu_spot.preflight.stack import Declared, Stack
from infra.settings import load_settings
from pulumi_on_moto import AwsClients

REGION = "us-west-2"
ZONES = ["us-west-2a", "us-west-2b"]
CAPACITY = {"kind": "mixed-asg", "target": 4, "instanceTypes": ["g6.xlarge", "g5.2xlarge"]}


def stack(
    capacity: Mapping[str, Any] | None = None, declared: Sequence[Declared] = (), **settings: Any
) -> Stack:
    raw = {
        "aws:region": REGION,
        "gpu-spot:network": {"cidr": "10.0.0.0/16", "zones": ZONES},
        "gpu-spot:services": [service(capacity)],
        **{f"gpu-spot:{key}": value for key, value in settings.items()},
    }
    return Stack.of("dev", load_settings(raw), declared)


def on_kubernetes(declared: Sequence[Declared] = (), **kubernetes: Any) -> Stack:
    """Return a stack with the service as pods of a cluster."""
    network = {
        "vpcId": "vpc-0123456789abcdef0",
        "subnets": dict(zip(ZONES, ("subnet-0123456789abcdef0", "subnet-0123456789abcdef1"), strict=True)),
    }
    pods = service(
        {"spotPercentage": 100, "instanceTypes": ["g6.xlarge", "g5.xlarge"]},
        runsOn="kubernetes",
        image="123456789012.dkr.ecr.us-west-2.amazonaws.com/web@sha256:" + "1" * 64,
        command=["serve"],
    )
    cluster = {"cluster": "research", "nodeImage": "al2023@v20261101", **kubernetes}
    if "create" not in cluster:
        cluster.setdefault("nodeRole", "nodes")
    return stack(declared=declared, network=network, services=[pods], kubernetes=cluster)


def service(capacity: Mapping[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    return {"name": "web", "capacity": {**CAPACITY, **(capacity or {})}, **keys}


def declared(type_: str, **inputs: Any) -> Declared:
    return Declared(type_, "name", inputs)


def stub_operation(clients: AwsClients, service: str, operation: str, response: Any) -> None:
    """Let an operation return ``response``, or the result of calling it with the request's body."""
    client = clients(service)
    model = client.meta.service_model.operation_model(operation)

    def respond(params: Mapping[str, Any], **_: Any) -> tuple[Any, dict[str, Any]]:
        body = params["body"]
        request = json.loads(body) if isinstance(body, bytes | str) and body else body
        body = response(request) if callable(response) else response
        if "Error" in body:
            return SimpleNamespace(status_code=400), body
        validate_parameters(body, model.output_shape)
        return SimpleNamespace(status_code=200), body

    event = f"before-call.{service}.{operation}"
    client.meta.events.unregister(event, unique_id=event)
    client.meta.events.register(event, respond, unique_id=event)


def stub_quotas(clients: AwsClients, values: Mapping[str, float]) -> None:
    """Stub Service Quotas; a negative value is AWS's default."""

    def value(asked: dict[str, str]) -> dict[str, Any]:
        given = values[asked["QuotaCode"]]
        if given < 0:
            return error("NoSuchResourceException")
        return {"Quota": {"QuotaName": asked["QuotaCode"], "Value": given}}

    def default(asked: dict[str, str]) -> dict[str, Any]:
        return {"Quota": {"QuotaName": asked["QuotaCode"], "Value": -values[asked["QuotaCode"]]}}

    stub_operation(clients, "service-quotas", "GetServiceQuota", value)
    stub_operation(clients, "service-quotas", "GetAWSDefaultServiceQuota", default)


def offered(clients: AwsClients, *pools: str) -> None:
    """Let the region offer these capacity pools: type and zone."""
    given = [{"InstanceType": type_, "Location": zone} for type_, zone in (pool.split("@") for pool in pools)]
    stub_operation(clients, "ec2", "DescribeInstanceTypeOfferings", {"InstanceTypeOfferings": given})


def error(code: str, message: str = "") -> dict[str, Any]:
    return {"Error": {"Code": code, "Message": message}}


def results_of(check: Check, stack: Stack, clients: AwsClients | Callable[[str], Any]) -> list[CheckResult]:
    account: Account = identify(clients)
    return list(check(stack, account))


def statuses(results: Sequence[CheckResult]) -> dict[str, str]:
    return {result.subject: result.status for result in results}
