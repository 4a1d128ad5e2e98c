"""Calls that no sandbox hears, held to AWS's models as a sandbox holds its own (``fixes/parameters.py``)."""

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

from pulumi_on_moto.fixes.everything import SPEED_UPS
from pulumi_on_moto.fixes.fix import patched
from pulumi_on_moto.fixes.parameters import PARAMETERS, REFUSED, faults
from pulumi_on_moto.fixes.speedups.answers import ANSWERS

# Not the remembered answers: who changes moto by itself would have to say so.
_PATCHES: Final = (*PARAMETERS.patches, *(one for one in SPEED_UPS if one is not ANSWERS))


@contextlib.contextmanager
def moto() -> Iterator[None]:
    """moto, for what needs no deployment; at its end no call may have been refused."""
    REFUSED.clear()
    with patched(_PATCHES), mock_aws():
        yield
    assert not REFUSED, REFUSED


def check(service: str, method: str, params: Mapping[str, Any]) -> None:
    """Fail unless AWS's model takes a call; for doubles of clients, which take anything."""
    model, operations = _model(service)
    operation = model.operation_model(operations[method])
    report = ParamValidator().validate(params, operation.input_shape)
    assert not report.has_errors(), report.generate_report()
    found = faults(operation, params)
    assert not found, found


@cache
def _model(service: str) -> tuple[ServiceModel, dict[str, str]]:
    model = botocore.session.get_session().get_service_model(service)
    return model, {xform_name(name): name for name in model.operation_names}
