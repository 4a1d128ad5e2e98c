"""Instances of a job of several nodes: the shipped agent on each, one job table in memory."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from tests.node import configs
from tests.node.job_table import Attributes, JobTable
from userdata.agent import tasks
from userdata.agent.aws.imds import IdentityDocument
from userdata.agent.machine.background import at_once
from userdata.agent.machine.clock import Clock

MOUNTS: Final = [{"fileSystem": "fs-1", "accessPoint": "fsap-1", "path": "/dltraining/checkpoints"}]


@dataclass
class SharedTables:
    """The job table, the parameter and the metrics that all instances write.

    ``point`` is called before each call that reads or writes a job or the parameter.
    """

    items: dict[str, Attributes] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)
    metrics: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    point: Callable[[str], None] = lambda operation: None

    def update_item(self, **asked: Any) -> dict[str, Any]:
        self.point("update")
        with self.lock:
            key = asked["Key"].get("job", {"S": ""})["S"]
            item = self.items.setdefault(key, {"job": {"S": key}})
            if not key:  # the worker registry
                return {}
            return JobTable(item, lambda name, effect: effect()).update_item(**asked)

    def delete_item(self, **_: Any) -> dict[str, Any]:
        return {}

    def put_item(self, **asked: Any) -> None:
        with self.lock:
            self.items[asked["Item"]["job"]["S"]] = dict(asked["Item"])

    def get_item(self, **asked: Any) -> dict[str, Any]:
        self.point("get")
        with self.lock:
            return {"Item": dict(self.items.get(asked["Key"]["job"]["S"], {}))}

    def batch_get_item(self, **asked: Any) -> dict[str, Any]:
        self.point("batch")
        [(table, wanted)] = asked["RequestItems"].items()
        assert wanted["ConsistentRead"]
        assert len(wanted["Keys"]) <= 100
        with self.lock:
            found = [dict(self.items.get(key["job"]["S"], {})) for key in wanted["Keys"]]
        return {"Responses": {table: [item for item in found if item]}}

    def put_parameter(self, **asked: Any) -> None:
        self.point("finish")
        self.finished.append(asked["Value"])

    def put_metric_data(self, **asked: Any) -> None:
        self.metrics.update(datum["MetricName"] for datum in asked["MetricData"])

    def item(self, name: str) -> Attributes:
        return self.get_item(Key={"job": {"S": name}})["Item"]  # type: ignore[no-any-return]


class NoHeartbeats:
    is_shared = False

    def send(self, *_: Any, **__: Any) -> frozenset[int]:
        return frozenset()

    def deregister(self, slot: int) -> None:
        pass

    def flush(self) -> None:
        pass


class _NoPrices:
    def paginate(self, **_: Any) -> list[dict[str, Any]]:
        return [{"SpotPriceHistory": []}]


def instance(
    tables: SharedTables, name: str, directory: Path, clock: Clock, host: Any, **training: Any
) -> tasks.Node:
    """Return an instance; ``training`` changes the section of its configuration."""
    section = {**configs.training()["training"], **training}
    config = configs.load(configs.training(volume=None, efs=MOUNTS, training=section))
    directory.mkdir(parents=True, exist_ok=True)
    node = tasks.Node(config, directory, "http://nowhere")
    node.run_in_background = at_once
    identity = IdentityDocument(name, "us-west-2a", "us-west-2", "g5.xlarge")
    node.__dict__.update(identity=identity, gpus=None)
    node.clock, node.host, node.root = clock, host, directory
    node.metadata = SimpleNamespace(  # type: ignore[assignment]
        lifecycle_state=lambda: "InService", purchase_option=lambda: "spot", identity=lambda: identity
    )
    node.clients = SimpleNamespace(
        dynamodb=lambda _: tables,
        ssm=lambda _: tables,
        cloudwatch=lambda _: tables,
        ec2=lambda _: SimpleNamespace(get_paginator=lambda _: _NoPrices()),
    )
    node.heartbeat_sender = NoHeartbeats  # type: ignore[method-assign,assignment]
    node.fenced = lambda dead_at: contextlib.nullcontext()  # it would end the tests
    node.make_user = lambda user, uses_aws=False: None  # type: ignore[method-assign]
    return node
