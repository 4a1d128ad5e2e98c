"""Each input of each source of load in turn: absent, late, an error or a lie for an hour under load."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from contracts.group.scaling_settings import Bounds
from contracts.registry.item import Worker
from contracts.registry.queue_state import QueueState
from contracts.registry.worker_report import WorkerReport
from contracts.watched_queue import WatchedQueue
from lambdas.aws.queues.sqs import _METRICS, SqsReader
from lambdas.core.queues import history as queue_history
from lambdas.core.queues import management_api
from lambdas.core.queues.history import QueueHistory
from lambdas.core.scaling.decide import decide
from lambdas.core.scaling.memory import ScalingMemory
from lambdas.core.scaling.model import LoadObservation
from lambdas.core.scaling.queue_source import QueueSource

RATE, WORKER_RATE, BOOT_MINUTES = 100.0, 10.0, 5
GROWTH = 1.5
"""Twenty minutes into the hour the load grows: what is left must show it."""
BEGIN: Final = 1_799_971_200.0
STEADY, BROKEN = 40, 60
QUEUE: Final = WatchedQueue("ocr", "sqs", "ocr", "123456789012")
FAULTS: Final[Mapping[str, Callable[[float, float], dict[str, Any]]]] = {
    "silent": lambda broken_at, end: {"end": broken_at},
    "late": lambda broken_at, end: {"end": end - 600},
    "error": lambda broken_at, end: {"end": 0.0, "status": "InternalError"},
    "partial": lambda broken_at, end: {"end": broken_at, "status": "PartialData"},
    "zero": lambda broken_at, end: {"end": end, "value": 0.0},
    "nan": lambda broken_at, end: {"end": end, "value": float("nan")},
}


@dataclass
class Service:
    """A queue and its workers: what arrives, waits and is done, by minute."""

    waiting: float = 0.0
    sums: dict[str, dict[float, float]] = field(default_factory=lambda: {name: {} for name in _METRICS})
    published: float = 0.0
    acknowledged: float = 0.0
    workers: int = 12
    broken_at: float = float("inf")

    def minute(self, now: float) -> None:
        arrived = 60 * RATE * (GROWTH if now >= self.broken_at + 20 * 60 else 1)
        served = min(self.waiting + arrived, 60 * self.workers * WORKER_RATE)
        self.waiting += arrived - served
        self.published += arrived
        self.acknowledged += served
        values = {"sent": arrived, "deleted": served, "received": served, "empty": 5.0, "oldest": 1.0}
        for name, value in values.items():
            self.sums[name][now - 60] = value
        self.rate = served / 60 / self.workers


@dataclass
class Aws:
    """SQS and CloudWatch; ``lost`` is the input with ``fault``."""

    service: Service
    lost: str
    fault: str

    def get_queue_url(self, **_: Any) -> dict[str, Any]:
        return {"QueueUrl": "u"}

    def get_queue_attributes(self, **_: Any) -> dict[str, Any]:
        attributes = {
            "ApproximateNumberOfMessages": str(int(self.service.waiting)),
            "ApproximateNumberOfMessagesNotVisible": "12",
        }
        if self.is_broken(None):
            return {"Attributes": {**attributes, self.lost: "0"} if self.fault == "zero" else {}}
        return {"Attributes": attributes}

    def is_broken(self, metric: str | None) -> bool:
        is_lost = self.lost == "all" or (self.lost == metric if metric else self.lost.startswith("Approx"))
        return is_lost and self.service.broken_at < float("inf")

    def get_metric_data(self, MetricDataQueries: Any, StartTime: Any, EndTime: Any, **_: Any) -> Any:  # noqa: N803
        results = []
        for query in MetricDataQueries:
            end = EndTime.timestamp()
            broken = FAULTS[self.fault](self.service.broken_at, end) if self.is_broken(query["Id"]) else {}
            points = [
                (datetime.fromtimestamp(at, UTC), broken.get("value", value))
                for at, value in reversed(self.service.sums[query["Id"]].items())
                if StartTime.timestamp() <= at < broken.get("end", end)
            ]
            times, values = zip(*points, strict=True) if points else ((), ())
            status = broken.get("status", "Complete")
            results.append({"Id": query["Id"], "Timestamps": times, "Values": values, "StatusCode": status})
        return {"MetricDataResults": results, "Messages": []}


def sqs(service: Service, lost: str, fault: str) -> Callable[[float], QueueState | None]:
    aws, history = Aws(service, lost, fault), [QueueHistory()]
    reader = SqsReader(aws, aws)

    def observe(now: float) -> QueueState | None:
        state, history[0] = reader.observe(QUEUE, history[0], now, 5.0)
        return state

    return observe


def rabbitmq(service: Service, lost: str, fault: str) -> Callable[[float], QueueState | None]:
    history = [QueueHistory()]

    def observe(now: float) -> QueueState | None:
        body: dict[str, Any] = {
            "messages_ready": int(service.waiting),
            "messages_unacknowledged": 12,
            "consumers": service.workers,
            "message_stats": {"publish": int(service.published), "ack": int(service.acknowledged)},
        }
        if service.broken_at < float("inf"):
            place = body["message_stats"] if lost in ("publish", "ack") else body
            del place[lost]
            if fault != "silent":
                place[lost] = 0 if fault == "zero" else None
        counts = management_api.parse_counts(200, json.dumps(body).encode())
        state, history[0] = queue_history.observe(history[0], counts, now)
        return state

    return observe


def reports(service: Service, lost: str, fault: str) -> Callable[[float], QueueState | None]:
    """The queue is read; ``lost`` is a value of the workers' reports."""
    return lambda now: QueueState(now, int(service.waiting), 12, 0.0, RATE, service.rate * service.workers, 1)


def report(now: float, service: Service, lost: str, fault: str) -> WorkerReport | None:
    rate = service.rate
    whole = WorkerReport("v", reported_at=now, done=1, rate=rate, busy=min(1.0, rate / WORKER_RATE))
    if service.broken_at > now or lost not in ("report", "rate", "busy", "reported_at"):
        return whole
    changed = {"rate": 0.0, "busy": 0.0 if fault == "zero" else None, "reported_at": service.broken_at - 600}
    return None if lost == "report" else replace(whole, **{lost: changed[lost]})


SQS_INPUTS = [(sqs, name, fault) for name in (*_METRICS, "all") for fault in FAULTS]
ATTRIBUTES = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
COLUMNS = ("messages_ready", "messages_unacknowledged", "consumers", "publish", "ack", "message_stats")
CASES: Final = [
    *SQS_INPUTS,
    *((sqs, name, fault) for name in ATTRIBUTES for fault in ("silent", "zero")),
    *((rabbitmq, name, fault) for name in COLUMNS for fault in ("silent", "zero", "null")),
    *(
        (reports, name, fault)
        for name in ("report", "rate", "busy", "reported_at")
        for fault in ("silent", "zero")
    ),
]


@pytest.mark.parametrize(("source", "lost", "fault"), CASES)
def test_no_input_that_is_lost_lowers_the_target(source: Any, lost: str, fault: str) -> None:
    service, memory, target = Service(), ScalingMemory(), 12
    observe, state = source(service, lost, fault), None
    targets, alarms = [], []
    for minute in range(STEADY + BROKEN):
        now = BEGIN + 60 * minute
        if minute == STEADY:
            service.broken_at = now
        service.minute(now)
        with contextlib.suppress(KeyError, ValueError):  # as the queue watcher: the last state stays
            state = observe(now) or state
        item = report(now, service, lost, fault)
        ready = {
            "g6": [Worker("p", f"i-{n}", 0, BEGIN - 9e3, now, report=item) for n in range(service.workers)]
        }
        load = QueueSource(state)
        decision = decide(
            LoadObservation(
                now=now,
                target=target,
                load=load.load(now),
                ready={"g6": service.workers},
                booting=max(0, target - service.workers),
                work_done=load.work_done(now, ready, memory.throughput),
                boot_seconds=60.0 * BOOT_MINUTES,
            ),
            Bounds(30.0, 0, 60),
            memory,
        )
        memory, target = decision.memory, decision.target
        targets.append(target)
        alarms.append(decision.is_alarm)
        booted = min(targets[-BOOT_MINUTES - 1 :])
        service.workers = max(1, booted if target >= service.workers else target)
    broken = targets[STEADY:]
    assert min(broken) >= RATE / WORKER_RATE + 1, broken
    assert max(broken) <= 4 * targets[STEADY - 1], broken
    if source is sqs and lost in _METRICS:
        assert min(broken[40:]) >= GROWTH * RATE / WORKER_RATE + 1, broken
    assert not any(alarms[10:STEADY])
    if lost in ("sent", "all", "publish", "message_stats", "report", "rate"):
        assert any(alarms[STEADY : STEADY + 6]), alarms[STEADY:]
