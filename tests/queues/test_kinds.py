"""A kind of queue that nobody has heard of, in the watcher's list alone: it is watched like the others."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.registry import queue_state
from contracts.registry.queue_state import Backlog
from contracts.watched_queue import WatchedQueue
from lambdas.aws.queues import kinds
from lambdas.aws.queues.watcher import build
from lambdas.core.queues.history import QueueHistory

PIGEONS = WatchedQueue("ocr", "pigeons", "loft", "roof")
SEEN = Backlog(at=60.0, ready=3, taken=1, oldest=9.0, arriving=0.5, leaving=0.25, readers=2)


class Loft:
    def __init__(self, sky: object) -> None:
        self.sky = sky

    def look(
        self, queue: WatchedQueue, past: QueueHistory, at: float, seconds: float
    ) -> tuple[Backlog | None, QueueHistory]:
        assert (queue, self.sky) == (PIGEONS, "client of sky")
        return SEEN, past


class Table:
    """Keeps what is put."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []

    def get_item(self, **_: Any) -> dict[str, Any]:
        return {}

    def put_item(self, *, Item: dict[str, Any], **_: Any) -> None:  # noqa: N803
        self.items.append(Item)


def test_a_new_kind_is_read_and_its_row_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds.KINDS, "pigeons", lambda client: Loft(client("sky")))  # type: ignore[arg-type]
    table = Table()
    clients = {"dynamodb": table, "sky": "client of sky"}
    [outcome] = build(clients.__getitem__, [PIGEONS], "registry", lambda: 60.0).run(5.0)
    assert (outcome.backlog, outcome.trouble) == (SEEN, "")
    assert queue_state.dump("ocr", SEEN) in table.items
