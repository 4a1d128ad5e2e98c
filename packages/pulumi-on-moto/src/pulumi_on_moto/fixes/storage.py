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

from pulumi_on_moto.fixes import Patches, around

_PLAIN_TEXT: Final = {"Bool": {"aws:SecureTransport": "false"}}


def _get_permission(get: Callable[..., Any], bucket: FakeBucket, action: str, resource: str) -> Any:
    if bucket.policy is None:
        return PermissionResult.NEUTRAL
    whole = bucket.policy
    policy = json.loads(whole)
    policy["Statement"] = [s for s in policy["Statement"] if s.get("Condition") != _PLAIN_TEXT]
    bucket.policy = json.dumps(policy).encode()
    try:
        return get(bucket, action, resource)
    finally:
        bucket.policy = whole


_AWS_OWN: Final = frozenset({"AWSCURRENT", "AWSPREVIOUS"})


def _move_labels(
    reset: Callable[..., None], secret: FakeSecret, secret_version: dict[str, Any], version_id: str
) -> None:
    new = set(secret_version["version_stages"])
    retained = {
        name: [label for label in version["version_stages"] if label not in _AWS_OWN | new]
        for name, version in secret.versions.items()
    }
    reset(secret, secret_version, version_id)
    for name, labels in retained.items():
        stages = secret.versions[name]["version_stages"]
        retained_own = [label for label in stages if label in _AWS_OWN - new]
        secret.versions[name]["version_stages"] = retained_own + labels


_STANDARD_CHARACTERS: Final = 4096
_PROTECTED_AT_ONCE: Final = 50


def _put_parameter(put: Callable[..., Any], *positional: Any, **named: Any) -> Any:
    arguments = signature(put).bind(*positional, **named).arguments
    is_standard = (arguments.get("tier") or "Standard") == "Standard"
    if is_standard and len(arguments["value"]) > _STANDARD_CHARACTERS:
        raise ValidationException(
            f"Standard tier parameters support a maximum value of {_STANDARD_CHARACTERS} characters."
        )
    return put(*positional, **named)


def _protect(protect: Callable[..., None], *positional: Any, **named: Any) -> None:
    if len(signature(protect).bind(*positional, **named).arguments["instance_ids"]) > _PROTECTED_AT_ONCE:
        raise ValidationError(f"InstanceIds must have length less than or equal to {_PROTECTED_AT_ONCE}")
    protect(*positional, **named)


PATCHES: Final[Patches] = (
    around(FakeBucket, "get_permission", _get_permission),
    around(FakeSecret, "reset_default_version", _move_labels),
    around(SimpleSystemManagerBackend, "put_parameter", _put_parameter),
    around(AutoScalingBackend, "set_instance_protection", _protect),
)
