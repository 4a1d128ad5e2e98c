"""Instance types of Amazon MQ by RabbitMQ version and deployment mode.

Source: Amazon MQ guide, "Managing Amazon MQ for RabbitMQ engine versions" (4.2 on mq.m7g only; 3.13 on mq.t3,
mq.m5 and mq.m7g) and the tables of "Sizing guidelines" (sizes), read on 22 November 2026. AWS adds types:
``gpu-spot preflight`` calls ``DescribeBrokerInstanceOptions``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from contracts.sentences import alternatives

EngineVersion = Literal["3.13", "4.2"]
BrokerMode = Literal["single", "cluster"]

MODES: Final[Mapping[BrokerMode, str]] = {"single": "SINGLE_INSTANCE", "cluster": "CLUSTER_MULTI_AZ"}
"""Deployment modes as AWS names them."""

_ALONE: Final = ("mq.t3.micro",)
_M5: Final = tuple(f"mq.m5.{size}" for size in ("large", "xlarge", "2xlarge", "4xlarge"))
_M7G: Final = tuple(
    f"mq.m7g.{size}"
    for size in ("medium", "large", "xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "16xlarge")
)

TYPES: Final[Mapping[tuple[EngineVersion, BrokerMode], tuple[str, ...]]] = {
    ("3.13", "single"): (*_ALONE, *_M5, *_M7G),
    ("3.13", "cluster"): (*_M5, *_M7G),
    ("4.2", "single"): _M7G,
    ("4.2", "cluster"): _M7G,
}


def check(version: EngineVersion, deployment: BrokerMode, instance_type: str) -> None:
    """Raise ``ValueError`` for an instance type that does not support the version and deployment mode."""
    allowed = TYPES[version, deployment]
    if instance_type not in allowed:
        raise ValueError(
            f"{instance_type!r} does not run RabbitMQ {version} as {deployment!r}; use "
            f"{alternatives(allowed)}"
        )
