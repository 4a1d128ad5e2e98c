"""Pull requests as changes of the shipped stack files, from harmless to dangerous."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

ENVIRONMENTS: Final = ("dev", "fleet", "prod", "research")

Edit = Callable[[dict[str, Any]], None]


def _capacity(config: dict[str, Any]) -> dict[str, Any]:
    work = config["gpu-spot:services"] or config["gpu-spot:training"]
    capacity: dict[str, Any] = work[0]["capacity"]
    return capacity


def _with(**settings: Any) -> Edit:
    return lambda config: _capacity(config).update(settings)


def _keep_logs_longer(config: dict[str, Any]) -> None:
    config["gpu-spot:logRetentionDays"] = 60


def _train_longer(config: dict[str, Any]) -> None:
    config["gpu-spot:training"][0]["command"][3] = "3000"
    config["gpu-spot:training"][0]["environment"] = {"SEED": "7"}


def _revise(config: dict[str, Any]) -> None:
    config["gpu-spot:training"][0]["revision"] = "b" * 40


def _without_fallback(config: dict[str, Any]) -> None:
    _capacity(config)["fallback"] = {"enabled": False}


def _renamed(config: dict[str, Any]) -> None:
    config["gpu-spot:services"][0]["name"] = "answers"


def _own_key(config: dict[str, Any]) -> None:
    config["gpu-spot:kmsKeyArn"] = (
        "arn:aws:kms:us-west-2:123456789012:key/00000000-0000-0000-0000-000000000000"
    )


def _without_a_bucket(config: dict[str, Any]) -> None:
    config["gpu-spot:storage"]["buckets"].pop(0)


def _one_pool_without_budget(config: dict[str, Any]) -> None:
    _capacity(config)["instanceTypes"] = ["g6.xlarge"]
    config["gpu-spot:network"]["zones"] = ["us-west-2a"]
    config["gpu-spot:monitoring"].pop("monthlyBudgetUsd")


OTHER_TYPES: Final = ["g6.xlarge", "g5.xlarge", "g6.2xlarge", "g5.2xlarge"]

REQUESTS: Final[Mapping[str, Mapping[str, Edit | None]]] = {
    "nothing": dict.fromkeys(ENVIRONMENTS),
    "keep-logs-longer": dict.fromkeys(ENVIRONMENTS, _keep_logs_longer),
    "more-workers": {"dev": _with(target=12), "prod": _with(target=20)},
    "fewer-workers": {"prod": _with(target=10, max=20)},
    "train-longer": {"research": _train_longer},
    "another-revision": {"research": _revise},
    "other-types": {"dev": _with(instanceTypes=OTHER_TYPES), "prod": _with(instanceTypes=OTHER_TYPES)},
    "other-types-of-a-fleet": {"fleet": _with(instanceTypes=OTHER_TYPES)},
    "without-fallback": {"dev": _without_fallback},
    "another-name": {"dev": _renamed},
    "one-pool-without-budget": {"prod": _one_pool_without_budget},
    "own-key": {"prod": _own_key},
    "without-a-bucket": {"prod": _without_a_bucket},
}
"""By name: the edit of each environment."""

ERRORS: Final = {
    ("without-a-bucket", "prod"): (
        "error: Preview failed: resource "
        "urn:pulumi:prod::gpu-spot::aws:s3/bucket:Bucket::gpu-spot-prod-bucket-datasets cannot be deleted\n"
        "because it is protected. To unprotect the resource, either remove the `protect` flag from the "
        "resource in your Pulumi program and run `pulumi up`, or use the command:\n"
        "`pulumi state unprotect <urn>`"
    )
}
"""Engine errors in addition to the steps (text: ``pkg/resource/deploy/step_generator.go``)."""
