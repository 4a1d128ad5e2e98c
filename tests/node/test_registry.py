from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from contracts import names
from contracts.agent.version import VERSION
from contracts.registry import item as registry_item
from contracts.registry.item import Progress
from contracts.registry.worker_report import WorkerReport
from tests import models
from tests.node.jobs import make_tables
from userdata.agent.aws.alarm_metrics import AlarmMetrics
from userdata.agent.aws.registry import WorkerRegistry
from userdata.agent.machine.errors import AgentError

TABLE = "registry"


@contextmanager
def empty_registry() -> Iterator[Any]:
    """Open a sandbox with an empty registry in it, and give a client."""
    with models.moto():
        yield make_tables(TABLE)


@pytest.fixture
def dynamodb() -> Iterator[Any]:
    with empty_registry() as client:
        yield client


def items(client: Any) -> dict[str, dict[str, str]]:
    found = client.scan(TableName="registry", ConsistentRead=True)["Items"]
    return {i["worker"]["S"]: {k: next(iter(v.values())) for k, v in i.items()} for i in found}


def test_since_is_the_first_heartbeat_and_heartbeat_the_last(dynamodb: Any) -> None:
    registry = WorkerRegistry(dynamodb, "registry", "serve", "i-1")
    registry.record_heartbeat([0, 1], 1000.0, "ready", None)
    registry.record_heartbeat([0, 1], 1010.9, "ready", None)
    assert items(dynamodb)["i-1/0"] == {
        "group": "serve",
        "worker": "i-1/0",
        "instance": "i-1",
        "since": "1000",
        "heartbeat": "1010",
        "state": "ready",
        "expires": "4610",
        "agentVersion": VERSION,
    }
    assert set(items(dynamodb)) == {"i-1/0", "i-1/1"}


def test_an_interrupted_worker_reports_its_deadline_and_then_drains(dynamodb: Any) -> None:
    registry = WorkerRegistry(dynamodb, "registry", "serve", "i-1")
    registry.record_heartbeat([0], 1000.0, "ready", 1120.0)
    registry.record_heartbeat([0], 1100.0, "draining", 1120.0)
    item = items(dynamodb)["i-1/0"]
    assert (item["state"], item["deadline"]) == ("draining", "1120")
    registry.record_heartbeat([0], 1101.0, "ready", None)
    assert "deadline" not in items(dynamodb)["i-1/0"]


def test_a_worker_that_left_is_gone(dynamodb: Any) -> None:
    registry = WorkerRegistry(dynamodb, "registry", "serve", "i-1")
    registry.record_heartbeat([0, 1], 1000.0, "ready", None)
    registry.deregister(1)
    assert set(items(dynamodb)) == {"i-1/0"}


def test_a_refusal_names_table_and_worker(dynamodb: Any) -> None:
    with pytest.raises(AgentError, match="registry nowhere, worker i-1/0: ResourceNotFound"):
        WorkerRegistry(dynamodb, "nowhere", "serve", "i-1").record_heartbeat([0], 1.0, "ready", None)


def test_a_heartbeat_sets_and_removes_the_progress(dynamodb: Any) -> None:
    registry = WorkerRegistry(dynamodb, "registry", "train", "i-1")
    progress = Progress(7, 100, 990.5, 10.0, 1.5, 2.0)
    registry.record_heartbeat([0], 1000.0, "ready", 1120.0, progress)
    [item] = dynamodb.scan(TableName="registry", ConsistentRead=True)["Items"]
    assert registry_item.parse(item).progress == progress
    registry.record_heartbeat([0], 1010.0, "ready", None)
    assert {"progress", "deadline"}.isdisjoint(items(dynamodb)["i-1/0"])


def request_restart(client: Any, worker: str, at: int) -> None:
    client.update_item(
        TableName="registry",
        Key={"group": {"S": "serve"}, "worker": {"S": worker}},
        UpdateExpression="SET restart = :at",
        ExpressionAttributeValues={":at": {"N": str(at)}},
    )


def test_a_restart_request_is_returned_until_the_worker_has_restarted(dynamodb: Any) -> None:
    registry = WorkerRegistry(dynamodb, "registry", "serve", "i-1")
    before, after = WorkerReport("v", starts=1), WorkerReport("v", starts=2)
    assert (
        registry.record_heartbeat([0, 1], 1000.0, "ready", None, None, {0: before, 1: before}, [0, 1])
        == set()
    )
    request_restart(dynamodb, "i-1/1", 1004)
    assert registry.record_heartbeat([0, 1], 1010.0, "ready", None, None, {0: before, 1: before}) == {1}
    assert registry.record_heartbeat([0, 1], 1020.0, "ready", None, None, {0: before, 1: before}) == {1}
    assert registry.record_heartbeat([0, 1], 1030.0, "ready", None, None, {0: before, 1: after}, [1]) == set()
    [worker] = [
        registry_item.parse(item)
        for item in dynamodb.scan(TableName="registry", ConsistentRead=True)["Items"]
        if item["worker"]["S"] == "i-1/1"
    ]
    assert (worker.since, worker.restart_requested_at, worker.report) == (1030.0, None, after)


@pytest.mark.parametrize("nonsense", [{"S": "now"}, {"N": "900"}, {"NULL": True}])
def test_a_malformed_or_completed_restart_request_is_ignored(nonsense: dict[str, Any]) -> None:
    assert not registry_item.is_restart_requested({"since": {"N": "1000"}, "restart": nonsense})


def test_credentials_that_are_revoked_or_expired_are_an_error_of_one_line(dynamodb: Any) -> None:
    def refuse(**_: Any) -> None:
        raise RuntimeError("Credentials were refreshed, but the refreshed credentials are still expired.")

    dynamodb.meta.events.register("before-call.dynamodb.UpdateItem", refuse)
    with pytest.raises(AgentError, match="registry registry, worker i-1/0: RuntimeError: Credentials"):
        WorkerRegistry(dynamodb, "registry", "serve", "i-1").record_heartbeat([0], 1.0, "ready", None)


def test_increment_adds_one_to_the_metric_of_the_group(aws: Any) -> None:
    client: Any = boto3.client("cloudwatch", region_name="us-west-2")
    metrics = AlarmMetrics(client, "research", "resnet")
    for metric in names.JOB_METRICS:
        metrics.increment(metric)
    found = client.list_metrics(Namespace=names.INSTANCE_NAMESPACE)["Metrics"]
    dimensions_by_name = {m["MetricName"]: {d["Name"]: d["Value"] for d in m["Dimensions"]} for m in found}
    assert dimensions_by_name.keys() == set(names.JOB_METRICS)
    assert all(
        dimensions == {"stack": "research", "group": "resnet"} for dimensions in dimensions_by_name.values()
    )


def test_a_failed_increment_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    class Deaf:
        def put_metric_data(self, **_: Any) -> None:
            raise ClientError({"Error": {"Code": "Throttling", "Message": "m"}}, "PutMetricData")

    client: Any = Deaf()
    AlarmMetrics(client, "s", "g").increment("JobFailures")
    assert "alarm metric not sent" in caplog.text
