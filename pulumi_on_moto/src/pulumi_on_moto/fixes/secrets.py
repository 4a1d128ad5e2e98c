"""Labels of a secret's versions.

Source: Secrets Manager API, ``PutSecretValue``: a label is on one version; the named labels move, and the
version that loses AWSCURRENT gets AWSPREVIOUS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from moto.secretsmanager.models import FakeSecret

from pulumi_on_moto.fixes.fix import Fix

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


LABELS: Final = Fix(
    "labels of secrets",
    moto="PutSecretValue with AWSCURRENT takes all other labels from the version that had it",
    aws="moves the labels that are named, and no others",
    patches=((FakeSecret, "reset_default_version", _keeping(FakeSecret.reset_default_version)),),
)
