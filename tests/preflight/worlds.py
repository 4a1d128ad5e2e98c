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
        "gpu-spot:services": [{"name": "web", "capacity": {**CAPACITY, **(capacity or {})}}],
        **{f"gpu-spot:{key}": value for key, value in settings.items()},
    }
    return Stack("dev", load_settings(raw), declared)


def declared(type_: str, **inputs: Any) -> Declared:
    return Declared(type_, "name", inputs)


def stub_operation(clients: AwsClients, service: str, operation: str, response: Any) -> None:
    """Let an operation return ``response``, or the result of calling it with the request's body.

    A ``dict`` with ``Error`` is raised as boto3 raises it. Requests and responses must fit botocore's model.
    """
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

    client.meta.events.register(f"before-call.{service}.{operation}", respond)


def error(code: str, message: str = "") -> dict[str, Any]:
    return {"Error": {"Code": code, "Message": message}}


def results_of(check: Check, stack: Stack, clients: AwsClients | Callable[[str], Any]) -> list[CheckResult]:
    account: Account = identify(clients)
    return list(check.run(stack, account))


def statuses(results: Sequence[CheckResult]) -> dict[str, str]:
    return {result.subject: result.status for result in results}
