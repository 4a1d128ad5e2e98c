"""Rows of the registry, and what agent, health checker, queue watcher and controller write for each other."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.group import replacement_requests
from contracts.group.replacement_requests import ReplacementRequest
from contracts.registry import item as registry_item
from contracts.registry import queue_state as backlog
from contracts.registry import worker_report
from contracts.registry.item import Progress, Worker, WorkerState
from contracts.registry.queue_state import QueueState
from contracts.registry.worker_report import WorkerReport

TIMES = st.floats(0, 4e9) | st.integers(0, 4_000_000_000)
NAMES = st.text(min_size=1)
PROGRESS = st.builds(
    lambda done, left, rate, more, **times: Progress(
        done, done + left, rate=rate, best_rate=rate + more, **times
    ),
    done=st.integers(0, 2**52),
    left=st.integers(1, 2**52),
    rate=st.floats(0, 1e6),
    more=st.floats(0, 1e6),
    reported_at=TIMES,
    first_reported_at=TIMES,
)


@given(
    st.builds(
        Worker,
        partition=NAMES,
        instance=NAMES,
        slot=st.integers(0, 1024),
        since=TIMES,
        heartbeat=TIMES,
        state=st.sampled_from(get_args(WorkerState)),
        deadline=st.none() | TIMES,
        progress=st.none() | PROGRESS,
    )
)
def test_what_is_written_is_read_again(worker: Worker) -> None:
    assert registry_item.parse(registry_item.dump(worker)) == worker


def test_a_worker_that_says_nothing_of_its_state_is_ready() -> None:
    item = registry_item.dump(Worker("serve", "i-1", 0, 1.0, 2.0, "waiting"))
    del item["state"]
    assert registry_item.parse(item).state == "ready"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step", "101"),  # of 100
        ("step", "-1"),
        ("step", "many"),
        ("steps", "0"),
        ("steps", str(2**53 + 1)),
        ("at", "nan"),
        ("rate", "inf"),
        ("rate", "-1"),
        ("rate", "3"),  # slower than the faster half, which is 2
    ],
)
def test_impossible_progress_counts_as_missing_and_the_worker_remains(field: str, value: str) -> None:
    progress = Progress(7, 100, 50.0, 10.0, 1.0, 2.0)
    item = registry_item.dump(Worker("train", "i-1", 0, 1.0, 2.0, "ready", progress=progress))
    assert registry_item.parse(item).progress == progress
    item["progress"]["M"][field]["N"] = value
    worker = registry_item.parse(item)
    assert (worker.instance, worker.progress) == ("i-1", None)


_AMOUNTS = st.floats(0, 2e9)
_COUNTS = st.integers(0, 2**40)
_REPORTS = st.builds(
    lambda more, **fields: WorkerReport(done=fields["failed"] + more, **fields),
    more=_COUNTS,
    version=st.text(max_size=worker_report.MAX_VERSION_LENGTH),
    gpu=st.text(max_size=40),
    reported_at=_AMOUNTS,
    failed=_COUNTS,
    rate=_AMOUNTS,
    gpu_use=st.none() | st.floats(0, 100),
    xid=st.integers(0, 200),
    starts=_COUNTS,
)


@given(_REPORTS, st.none() | _AMOUNTS)
def test_a_report_is_stored_in_the_registry(report: WorkerReport, restart: float | None) -> None:
    worker = Worker("ocr", "i-1", 0, 1.0, 2.0, "ready", report=report, restart_requested_at=restart)
    assert registry_item.parse(registry_item.dump(worker)) == worker
    update = registry_item.heartbeat("i-1", 2.0, "ready", None, report=report)
    item = {**registry_item.dump(worker), "pulse": update["ExpressionAttributeValues"][":pulse"]}
    assert registry_item.parse(item).report == report


@pytest.mark.parametrize("wrong", [{"failed": 2, "done": 1}, {"rate": float("nan")}, {"version": "x" * 101}])
def test_an_impossible_report_is_rejected_and_counts_as_missing(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        WorkerReport(**{"version": "1", **wrong})  # type: ignore[arg-type]
    item = registry_item.dump(Worker("ocr", "i-1", 0, 1.0, 2.0, "ready"))
    item["pulse"] = {"M": {"version": {"S": "1"}, "done": {"N": "many"}}}
    assert registry_item.parse(item).report is None


@given(st.builds(QueueState, *[_AMOUNTS, _COUNTS, _COUNTS, _AMOUNTS, _AMOUNTS, _AMOUNTS, _COUNTS]))
def test_a_backlog_comes_back(seen: QueueState) -> None:
    assert backlog.parse(backlog.dump("ocr", seen)) == seen


def test_replacement_requests_fit_into_a_parameter_whatever_their_reasons() -> None:
    many = [
        ReplacementRequest(f"i-{number:017x}", 1_900_000_000 - number, "x" * 100) for number in range(100)
    ]
    text = replacement_requests.dump(many)
    assert len(text.encode()) <= 4096
    parsed = replacement_requests.parse(text)
    assert {request.instance for request in parsed} == {
        request.instance for request in many[-replacement_requests.MAX_REQUESTS :]
    }
    assert replacement_requests.parse(replacement_requests.dump(parsed)) == parsed
