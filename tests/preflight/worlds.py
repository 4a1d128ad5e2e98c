"""An account on moto, with answers of ours where moto has none, and a small stack to look at it with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from botocore.validate import validate_parameters

from gpu_spot.preflight.account import Account, identified
from gpu_spot.preflight.remark import Check, Remark
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


def answer(clients: AwsClients, service: str, operation: str, response: Any) -> None:
    """Let an operation answer with ``response``, or with what that makes of the request's body.

    A ``dict`` with ``Error`` is raised as boto3 raises it. Requests and answers must fit botocore's model.
    """
    client = clients(service)
    model = client.meta.service_model.operation_model(operation)

    def replied(params: Mapping[str, Any], **_: Any) -> tuple[Any, dict[str, Any]]:
        body = params["body"]
        asked = json.loads(body) if isinstance(body, bytes | str) and body else body
        given = response(asked) if callable(response) else response
        if "Error" in given:
            return SimpleNamespace(status_code=400), given
        validate_parameters(given, model.output_shape)
        return SimpleNamespace(status_code=200), given

    client.meta.events.register(f"before-call.{service}.{operation}", replied)


def error(code: str, message: str = "") -> dict[str, Any]:
    return {"Error": {"Code": code, "Message": message}}


def remarks(check: Check, wanted: Stack, clients: AwsClients | Callable[[str], Any]) -> list[Remark]:
    account: Account = identified(clients)
    return list(check.look(wanted, account))


def statuses(found: Sequence[Remark]) -> dict[str, str]:
    return {one.subject: one.status for one in found}
