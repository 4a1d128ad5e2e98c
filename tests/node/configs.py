"""Configurations as the boot data writes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from contracts.agent import config

REVISION = "0123456789abcdef0123456789abcdef01234567"


def training(**changes: Any) -> dict[str, Any]:
    return {
        "region": "us-west-2",
        "stack": "dev",
        "group": "resnet",
        "side": "primary",
        "registryTable": "registry",
        "drainSeconds": 20,
        "hooks": {"autoScalingGroup": "resnet-asg", "terminate": "drain", "terminateSeconds": 300},
        "volume": {"dataset": "s3://datasets/imagenet/"},
        "training": {
            "job": "resnet",
            "jobTable": "jobs",
            "repository": "https://example.com/resnet.git",
            "revision": REVISION,
            "command": ["python", "train.py"],
            "user": "trainer",
            "finishedParameter": "/gpu-spot/dev/groups/resnet/finished",
        },
        **changes,
    }


def service(**changes: Any) -> dict[str, Any]:
    body = training(**{"service": {"command": ["worker"]}, **changes})
    del body["training"], body["volume"]
    return body


def load(body: dict[str, Any]) -> config.Config:
    return config.parse(json.dumps(body))


class FakeClock:
    """Wall and monotonic time that only `sleep`, `advance` and `jump` move."""

    def __init__(self, wall: float = 1_700_000_000.0) -> None:
        self._wall = wall
        self._monotonic = 1000.0
        self.on_sleep: Callable[[float], None] = lambda seconds: None

    def wall(self) -> float:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.advance(max(seconds, 0.0))
        self.on_sleep(seconds)

    def advance(self, seconds: float) -> None:
        self._wall += seconds
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Move the wall clock alone, as chrony or a person does."""
        self._wall += seconds
