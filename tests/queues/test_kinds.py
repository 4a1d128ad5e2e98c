"""A new kind of queue needs only an entry in the watcher's list."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.registry import queue_state
from contracts.registry.queue_state import QueueState
from contracts.watched_queue import WatchedQueue
from lambdas.aws.queues import kinds
from lambdas.aws.queues.watcher import build
from lambdas.core.queues.history import QueueHistory

PIGEONS = WatchedQueue("ocr", "pigeons", "loft", "roof")
STATE = QueueState(
    observed_at=60.0, ready=3, in_flight=1, oldest_seconds=9.0, publish_rate=0.5, ack_rate=0.25, consumers=2
)


class FakeReader:
    def __init__(self, sky: object) -> None:
        self.sky = sky

    def observe(
        self, queue: WatchedQueue, past: QueueHistory, at: float, seconds: float
    ) -> tuple[QueueState | None, QueueHistory]:
        assert (queue, self.sky) == (PIGEONS, "client of sky")
        return STATE, past


class Table:
    """Stores the items that are put."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []

    def get_item(self, **_: Any) -> dict[str, Any]:
        return {}

    def put_item(self, *, Item: dict[str, Any], **_: Any) -> None:  # noqa: N803
        self.items.append(Item)


def test_a_new_kind_is_read_and_its_item_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds.KINDS, "pigeons", lambda client: FakeReader(client("sky")))  # type: ignore[arg-type]
    table = Table()
    clients = {"dynamodb": table, "sky": "client of sky"}
    [outcome] = build(clients.__getitem__, [PIGEONS], "registry", lambda: 60.0).run(5.0)
    assert (outcome.state, outcome.error) == (STATE, "")
    assert queue_state.dump("ocr", STATE) in table.items
