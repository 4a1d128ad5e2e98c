"""Limits that botocore's models do not have.

Source: SSM API reference, ``PutParameter``, ``Tier``; Auto Scaling API reference, ``SetInstanceProtection``.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, Final

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import AutoScalingBackend
from moto.ssm.exceptions import ValidationException
from moto.ssm.models import SimpleSystemManagerBackend

from pulumi_on_moto.fixes.fix import Fix

_STANDARD_CHARACTERS: Final = 4096
_PROTECTED_AT_ONCE: Final = 50


def _put(put: Callable[..., Any]) -> Callable[..., Any]:
    def checked(backend: SimpleSystemManagerBackend, *positional: Any, **more: Any) -> Any:
        arguments = signature(put).bind(backend, *positional, **more).arguments
        is_standard = (arguments.get("tier") or "Standard") == "Standard"
        if is_standard and len(arguments["value"]) > _STANDARD_CHARACTERS:
            raise ValidationException(
                f"Standard tier parameters support a maximum value of {_STANDARD_CHARACTERS} characters."
            )
        return put(backend, *positional, **more)

    return checked


def _protect(protect: Callable[..., None]) -> Callable[..., None]:
    def checked(
        backend: AutoScalingBackend, group_name: str, instance_ids: list[str], *more: Any, **keywords: Any
    ) -> None:
        if len(instance_ids) > _PROTECTED_AT_ONCE:
            raise ValidationError(f"InstanceIds must have length less than or equal to {_PROTECTED_AT_ONCE}")
        protect(backend, group_name, instance_ids, *more, **keywords)

    return checked


LIMITS: Final = Fix(
    "limits of parameters and protection",
    moto="PutParameter takes a value of any length, SetInstanceProtection any number of instances",
    aws=f"refuses more than {_STANDARD_CHARACTERS} characters in the standard tier, and more than "
    f"{_PROTECTED_AT_ONCE} instances",
    patches=(
        (SimpleSystemManagerBackend, "put_parameter", _put(SimpleSystemManagerBackend.put_parameter)),
        (
            AutoScalingBackend,
            "set_instance_protection",
            _protect(AutoScalingBackend.set_instance_protection),
        ),
    ),
)
