"""The queue watcher: asks each service's queue how it stands, and writes that down for the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from contracts import names
from contracts.registry import queue_state as rows
from contracts.registry.queue_state import Backlog
from contracts.watched_queue import WatchedQueue
from lambdas.aws.queues.kinds import KINDS
from lambdas.aws.queues.reader import Reader
from lambdas.core.queues import history as queue_history
from lambdas.core.queues.history import QueueHistory

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_MOST_SECONDS: Final = 8.0
"""For one queue: a broker that is away answers in no time, or never."""
_HISTORY: Final = "history"
"""Sort key of what is remembered of a queue, beside the row that tells of it."""


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """What a look at a queue came to; without ``backlog`` nothing was written, and ``trouble`` says why.

    Both are missing after a first look, from which nothing follows yet.
    """

    queue: WatchedQueue
    backlog: Backlog | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class QueueWatcher:
    """Looks at all queues of a stack; ``readers`` by kind, ``clock`` returns epoch seconds."""

    queues: Sequence[WatchedQueue]
    readers: Mapping[str, Reader]
    dynamodb: DynamoDBClient
    table: str
    clock: Callable[[], float]

    def run(self, seconds: float) -> list[QueueOutcome]:
        """Look at every queue, within ``seconds``: each has its share, and another is first each minute."""
        ends_at = self.clock() + seconds
        first = int(self.clock() // 60) % len(self.queues) if self.queues else 0
        waiting = [*self.queues[first:], *self.queues[:first]]
        outcomes = []
        while waiting:
            share = (ends_at - self.clock()) / len(waiting)
            queue = waiting.pop(0)
            try:
                seen = self._look(queue, min(share, _MOST_SECONDS))
            except Exception as error:  # whatever it is: told, and the others are looked at
                line = " ".join(str(error).split())
                outcomes.append(QueueOutcome(queue, trouble=line or type(error).__name__))
            else:
                outcomes.append(QueueOutcome(queue, seen))
        return outcomes

    def _look(self, queue: WatchedQueue, seconds: float) -> Backlog | None:
        if queue.kind not in self.readers:
            raise ValueError(
                f"queues of kind {queue.kind!r} are not read, allowed: {', '.join(self.readers)}"
            )
        if seconds <= 0:
            raise TimeoutError("no time was left for this queue")
        past = self._remembered(queue)
        seen, history = self.readers[queue.kind].look(queue, past, self.clock(), seconds)
        self._remember(queue, history)
        if seen is not None:
            self.dynamodb.put_item(TableName=self.table, Item=rows.dump(queue.group, seen))
        return seen

    def _remembered(self, queue: WatchedQueue) -> QueueHistory:
        """Return the history; an empty one where it cannot be read, or is of a queue before this one."""
        answer = self.dynamodb.get_item(TableName=self.table, Key=_key(queue.group), ConsistentRead=True)
        item = answer.get("Item", {})
        if item.get("of") != {"S": _identity(queue)}:
            return QueueHistory()
        try:
            return queue_history.parse(item["text"]["S"])
        except (KeyError, ValueError):
            return QueueHistory()

    def _remember(self, queue: WatchedQueue, history: QueueHistory) -> None:
        item: dict[str, Any] = {
            **_key(queue.group),
            "of": {"S": _identity(queue)},
            "text": {"S": queue_history.dumps(history)},
            names.REGISTRY_TTL: {"N": str(int(history.at or self.clock()) + rows.KEPT_SECONDS)},
        }
        self.dynamodb.put_item(TableName=self.table, Item=item)


def _key(group: str) -> dict[str, Any]:
    return {**rows.key(group), names.REGISTRY_SORT_KEY: {"S": _HISTORY}}


def _identity(queue: WatchedQueue) -> str:
    return f"{queue.kind} {queue.name} {queue.place}"


def build(
    client: Callable[[str], Any], queues: Sequence[WatchedQueue], table: str, clock: Callable[[], float]
) -> QueueWatcher:
    """Return the watcher; ``client`` gives the boto3 client of a service by its name."""
    kinds = {queue.kind for queue in queues}
    readers = {kind: reader(client) for kind, reader in KINDS.items() if kind in kinds}
    return QueueWatcher(queues, readers, client("dynamodb"), table, clock)
