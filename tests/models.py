"""Validation against botocore's models of calls outside a sandbox (inside: ``fixes/parameters.py``)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import botocore.session
from botocore import xform_name
from botocore.model import ServiceModel
from botocore.validate import ParamValidator
from moto import mock_aws
from moto.core.models import botocore_stubber

from pulumi_on_moto.fixes import patched
from pulumi_on_moto.fixes.everything import SPEED_UPS
from pulumi_on_moto.fixes.parameters import PATCHES, REFUSED, faults
from pulumi_on_moto.fixes.speedups.cached_responses import CACHED_RESPONSES

# Without cached responses: tests that change moto directly would have to clear them.
_PATCHES: Final = (*PATCHES, *(patch for patch in SPEED_UPS if patch is not CACHED_RESPONSES))


@contextlib.contextmanager
def moto() -> Iterator[None]:
    """Start moto without a deployment; fail at the end if a call was invalid.

    A process has one moto: with a second one the tables and buckets of the first would be there already.
    """
    if botocore_stubber.enabled:
        raise RuntimeError("moto runs in this process: end it first (a fixture of a wider scope?)")
    REFUSED.clear()
    with patched(_PATCHES), mock_aws():
        yield
    assert not REFUSED, REFUSED


def create_table(dynamodb: Any, name: str, *keys: str) -> None:
    """Create a table whose keys are texts: the hash, and the range if there is one."""
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": k, "KeyType": t} for k, t in zip(keys, ("HASH", "RANGE"), strict=False)],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
    )


def check(service: str, method: str, params: Mapping[str, Any]) -> None:
    """Fail if a call is invalid by AWS's model; for fake clients, which accept anything."""
    model, operations = _model(service)
    operation = model.operation_model(operations[method])
    report = ParamValidator().validate(params, operation.input_shape)
    assert not report.has_errors(), report.generate_report()
    errors = faults(operation, params)
    assert not errors, errors


@cache
def _model(service: str) -> tuple[ServiceModel, dict[str, str]]:
    model = botocore.session.get_session().get_service_model(service)
    return model, {xform_name(name): name for name in model.operation_names}
