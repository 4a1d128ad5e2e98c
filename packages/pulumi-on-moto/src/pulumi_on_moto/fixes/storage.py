"""S3, Secrets Manager and Systems Manager: TLS, labels of versions, the size of parameters.

Every call to a bucket here counts as encrypted. Sources: Secrets Manager API, ``PutSecretValue``: a label is
on one version; the named labels move, and the version that loses AWSCURRENT gets AWSPREVIOUS. SSM API
reference, ``PutParameter``, ``Tier``. Auto Scaling API reference, ``SetInstanceProtection``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from inspect import signature
from typing import Any, Final

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import AutoScalingBackend
from moto.iam.access_control import PermissionResult
from moto.s3.models import FakeBucket
from moto.secretsmanager.models import FakeSecret
from moto.ssm.exceptions import ValidationException
from moto.ssm.models import SimpleSystemManagerBackend

from pulumi_on_moto.fixes import Patches

_PLAIN_TEXT: Final = {"Bool": {"aws:SecureTransport": "false"}}


def _regarding_tls(permission: Callable[..., Any]) -> Callable[..., Any]:
    def regarded(bucket: FakeBucket, action: str, resource: str) -> Any:
        if bucket.policy is None:
            return PermissionResult.NEUTRAL
        whole = bucket.policy
        policy = json.loads(whole)
        policy["Statement"] = [s for s in policy["Statement"] if s.get("Condition") != _PLAIN_TEXT]
        bucket.policy = json.dumps(policy).encode()
        try:
            return permission(bucket, action, resource)
        finally:
            bucket.policy = whole

    return regarded


_AWS_OWN: Final = frozenset({"AWSCURRENT", "AWSPREVIOUS"})


def _keeping(reset: Callable[..., None]) -> Callable[..., None]:
    def moved(secret: FakeSecret, secret_version: dict[str, Any], version_id: str) -> None:
        new = set(secret_version["version_stages"])
        retained = {
            name: [label for label in version["version_stages"] if label not in _AWS_OWN | new]
            for name, version in secret.versions.items()
        }
        reset(secret, secret_version, version_id)
        for name, labels in retained.items():
            stages = secret.versions[name]["version_stages"]
            secret.versions[name]["version_stages"] = [
                *(label for label in stages if label in _AWS_OWN - new),
                *labels,
            ]

    return moved


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


PATCHES: Final[Patches] = (
    (FakeBucket, "get_permission", _regarding_tls(FakeBucket.get_permission)),
    (FakeSecret, "reset_default_version", _keeping(FakeSecret.reset_default_version)),
    (SimpleSystemManagerBackend, "put_parameter", _put(SimpleSystemManagerBackend.put_parameter)),
    (AutoScalingBackend, "set_instance_protection", _protect(AutoScalingBackend.set_instance_protection)),
)
