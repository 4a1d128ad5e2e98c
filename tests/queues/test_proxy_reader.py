"""The queue watcher and a service's proxies: EC2, and the registry's table of moto."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest

from contracts import names, watched_queue
from contracts.registry import http_state, proxy_state
from contracts.registry import item as registry_item
from contracts.registry.http_state import HttpState
from contracts.registry.item import Worker
from contracts.registry.proxy_state import ProxyState, WorkerRequests
from contracts.registry.worker_report import WorkerReport
from contracts.watched_queue import WatchedQueue
from lambdas.aws.queues import proxies
from lambdas.aws.queues.watcher import QueueOutcome, QueueWatcher, build
from lambdas.handlers import queues as entry
from tests import models
from tests.fakes.aws import ARNS
from tests.queues.test_watcher import REGISTRY_KEYS, TABLE, Remaining, as_deployed, metric_names

GROUP = "chat"
CHAT = WatchedQueue(GROUP, watched_queue.HTTP, GROUP, "")


@dataclass
class Proxies:
    """Instances and a table of moto, and a clock in EC2's time; ``arrived`` counts at each proxy."""

    now: float = 0.0
    arrived: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ec2 = boto3.client("ec2", "us-west-2")
        self.dynamodb = boto3.client("dynamodb", "us-west-2")
        models.create_table(self.dynamodb, TABLE, *REGISTRY_KEYS)
        for group, stack in ((GROUP, "dev"), (GROUP, "dev"), ("other", "dev"), (GROUP, "prod")):
            self.launch(group, stack)

    def launch(self, group: str = GROUP, stack: str = "dev") -> str:
        """Launch a proxy; those of this group and stack count requests."""
        tags = {names.TAG_STACK: stack, names.TAG_PROXY: group}
        [instance] = self.ec2.run_instances(
            ImageId="ami-12c6146b",
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[
                {
                    "ResourceType": "instance",
                    "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
                }
            ],
        )["Instances"]
        name = instance["InstanceId"]
        if (group, stack) == (GROUP, "dev"):
            self.now = max(self.now, instance["LaunchTime"].timestamp() + 86_400)
            self.arrived[name] = 0
        return name

    def write(self, proxy: str, arrived: int = 0, *, lag: float = 5.0, worker: str = "") -> None:
        """Write a proxy's item, after this many more requests, all of them by the worker."""
        self.arrived[proxy] += arrived
        count = self.arrived[proxy]
        workers = (WorkerRequests(worker, 1, count, 0, 1, count / 2, count),) if worker else ()
        state = ProxyState(self.now - lag, self.now - 86_400, 2, 1, 0.5, count, count, workers=workers)
        self.put(proxy_state.dump(GROUP, ARNS + proxy, state))

    def put(self, item: dict[str, Any]) -> None:
        self.dynamodb.put_item(TableName=TABLE, Item=item)

    def watcher(self) -> QueueWatcher:
        clients = {"dynamodb": self.dynamodb, "ec2": self.ec2}
        return build(clients.__getitem__, [CHAT], TABLE, lambda: self.now, "dev", ARNS)

    def poll(self) -> QueueOutcome:
        [outcome] = self.watcher().run(5.0)
        return outcome

    def stored(self) -> HttpState | None:
        item = self.dynamodb.get_item(TableName=TABLE, Key=http_state.key(GROUP)).get("Item")
        return None if item is None else http_state.parse(item)


@pytest.fixture
def aws() -> Iterator[Proxies]:
    with models.moto():
        yield Proxies()


def minute(aws: Proxies, *arrived: int, worker: str = "") -> QueueOutcome:
    aws.now += 60
    for proxy, count in zip(aws.arrived, arrived, strict=False):
        aws.write(proxy, count, worker=worker)
    return aws.poll()


def test_the_requests_of_a_services_proxies_are_written_from_the_second_pass_on(aws: Proxies) -> None:
    worker = "i-0123456789abcdef0"
    partition = registry_item.partition(GROUP, ARNS + worker)
    since = aws.now - 3600
    aws.put(
        registry_item.dump(Worker(partition, worker, 1, since, aws.now, "ready", report=WorkerReport("v1")))
    )
    assert minute(aws, 100, 100, worker=worker) == QueueOutcome(CHAT)
    assert aws.stored() is None
    outcome = minute(aws, 60, 120, worker=worker)
    assert outcome.error == ""
    assert (outcome.http.waiting, outcome.http.proxies, outcome.http.arrival_rate) == (4, 2, 3.0)
    [traffic] = outcome.http.workers
    assert (traffic.instance, traffic.slot, traffic.since, traffic.done) == (worker, 1, since, 180)
    assert aws.stored() == outcome.http


def test_a_proxy_that_cannot_be_read_is_named(aws: Proxies) -> None:
    minute(aws, 60, 60)
    minute(aws, 60, 60)
    first, second = aws.arrived
    aws.now += 60
    aws.write(first, 60)
    outcome = aws.poll()
    assert outcome.error == f"{second}: item of 65 s ago"
    assert (outcome.http.unreadable, outcome.http.arrival_rate) == (1, 2.0)
    aws.put({**proxy_state.key(GROUP, ARNS + second), "arrived": {"S": "many\nlines"}})
    outcome = aws.poll()
    assert f"{second}: malformed item of a proxy" in outcome.error
    assert "\n" not in outcome.error


def test_without_any_proxy_nothing_is_known(aws: Proxies) -> None:
    minute(aws, 60, 60)
    minute(aws, 60, 60)
    before = aws.stored()
    aws.ec2.terminate_instances(InstanceIds=[*aws.arrived])
    aws.now += 60
    outcome = aws.poll()
    assert (outcome.http, outcome.error) == (None, "no proxy runs")
    assert aws.stored() == before


def test_requests_of_a_replaced_proxy_are_counted(aws: Proxies) -> None:
    minute(aws, 60, 60)
    minute(aws, 60, 60)
    first, second = aws.arrived
    aws.now += 60
    aws.write(first, 60)
    aws.write(second, 30, lag=35.0)
    aws.ec2.terminate_instances(InstanceIds=[second])
    outcome = aws.poll()
    assert outcome.error == ""
    assert (outcome.http.proxies, outcome.http.arrival_rate) == (1, pytest.approx(1.5))


def test_a_malformed_history_is_reset(aws: Proxies) -> None:
    minute(aws, 60, 60)
    key = {**http_state.key(GROUP), names.REGISTRY_SORT_KEY: {"S": "http-history"}}
    aws.put({**key, "text": {"S": "nonsense"}})
    assert minute(aws, 60, 60) == QueueOutcome(CHAT)
    assert minute(aws, 60, 60).http is not None


def test_a_history_too_large_for_an_item_is_refused(aws: Proxies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "_MAX_HISTORY_BYTES", 100)
    assert "at 2 proxies must have at most 100 bytes, not " in minute(aws, 60, 60).error


def test_the_handler_logs_and_counts_what_is_unknown(
    aws: Proxies, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(names.ENV_INSTANCE_ARNS, ARNS)
    log = as_deployed(monkeypatch, [CHAT], lambda: aws.now)
    found = []
    for counts in ((60, 60), (60, 60), (60,), ()):
        aws.now += 60
        for proxy, count in zip(aws.arrived, counts, strict=False):
            aws.write(proxy, count)
        entry.handler({}, Remaining())
        [line] = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
        assert (line["group"], metric_names(line)) == (GROUP, [names.METRIC_PROXIES_UNREADABLE])
        found.append(line[names.METRIC_PROXIES_UNREADABLE][-1])
    entry._watcher.cache_clear()
    assert found == [0, 0, 1, 1]
    first, second = [json.loads(text) for text in log.getvalue().splitlines()]
    assert first["message"] == second["message"] == "requests at proxies unknown"
    assert "item of 65 s ago" in first["reason"]
