"""Former names of the public API work for one minor version, with a DeprecationWarning."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest

import spot_work
from spot_work import Overflow, Queue, Request, Requeue, Worker
from spot_work.client import Client


def test_former_arguments_set_the_current_attributes() -> None:
    with pytest.warns(DeprecationWarning, match=r"Queue\(tries=…\) is deprecated, use max_deliveries=…"):
        queue = Queue("ocr", tries=3)  # type: ignore[call-arg]
    assert queue == Queue("ocr", max_deliveries=3)
    with pytest.warns(DeprecationWarning, match="most"):
        assert Queue("ocr", most=7) == Queue("ocr", max_length=7)  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match="after"):
        assert Overflow(len, after=30) == Overflow(len, after_seconds=30)  # type: ignore[call-arg]


def test_an_argument_under_both_names_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"Queue\(\) got both max_deliveries and its former name tries"):
        Queue("ocr", tries=3, max_deliveries=4)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("value", "former", "expected"),
    [
        (Queue("ocr", max_deliveries=3), "tries", 3),
        (Queue("ocr", max_length=7), "most", 7),
        (Queue, "tries", 20),
        (Overflow(len, after_seconds=30), "after", 30),
        (Request("r1", 1, age_seconds=2.0), "age", 2.0),
        (Request("r1", 1, delivery_count=2), "tries", 2),
    ],
)
def test_former_attributes_read_the_current_ones(value: Any, former: str, expected: object) -> None:
    with pytest.warns(DeprecationWarning, match=rf"\.{former} is deprecated"):
        assert getattr(value, former) == expected


def test_former_counters_of_a_worker() -> None:
    class IdleConsumer:
        is_connected = threading.Event()
        max_batches_ahead = 1

    worker = Worker(IdleConsumer(), len)  # type: ignore[arg-type]
    worker.completed_count, worker.failed_count, worker.busy_seconds = 3, 1, 0.5
    with pytest.warns(DeprecationWarning, match="Worker"):
        counters = [getattr(worker, former) for former in ("done", "failed", "busy")]
    assert counters == [3, 1, 0.5]
    with pytest.warns(DeprecationWarning, match=r"Worker\(source=…\)"):
        Worker(source=IdleConsumer(), function=len)  # type: ignore[call-arg]


def test_the_former_counter_of_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "unmatched_replies", 2)
    with pytest.warns(DeprecationWarning, match=r"Client.strays is deprecated, use unmatched_replies"):
        assert Client.strays == 2  # type: ignore[attr-defined]


def test_current_names_do_not_warn() -> None:
    queue = Queue("ocr", max_deliveries=3)
    assert dataclasses.replace(queue, max_length=7) == Queue("ocr", 3, 7)


def test_the_former_exception() -> None:
    with pytest.warns(DeprecationWarning, match=r"spot_work.HandBack is deprecated, use spot_work.Requeue"):
        assert spot_work.HandBack is Requeue
    with pytest.raises(AttributeError, match="Missing"):
        spot_work.Missing  # noqa: B018
