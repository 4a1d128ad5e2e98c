"""The queue watcher: writes the state of each service's queue and proxies to the worker registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from contracts import names
from contracts.registry import queue_state
from contracts.registry.http_state import HttpState
from contracts.registry.queue_state import QueueState
from contracts.sentences import alternatives
from contracts.watched_queue import HTTP, WatchedQueue
from lambdas.aws.queues import proxies
from lambdas.aws.queues.kinds import KINDS, QueueReader
from lambdas.aws.queues.proxies import ProxyReader
from lambdas.core.queues import history as queue_history
from lambdas.core.queues.history import QueueHistory

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_MAX_SECONDS_PER_QUEUE: Final = 8.0
"""A reachable broker responds much faster; one that does not respond must not delay the other queues."""
_HISTORY: Final = "history"
"""Sort key of a queue's history, next to the item with its state."""


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """The result of reading a queue: the state that was written, or the error.

    Neither is set after the first read of a queue, which gives no rates yet. Of the requests at a service's
    proxies ``http`` is the state that was written; with it, ``error`` names the proxies that are unknown.
    """

    queue: WatchedQueue
    state: QueueState | None = None
    error: str = ""
    http: HttpState | None = None


@dataclass(frozen=True, slots=True)
class QueueWatcher:
    """Reads all queues of a stack; ``readers`` by kind, ``clock`` returns epoch seconds.

    ``proxies`` reads the requests at proxies; None if no service has any.
    """

    queues: Sequence[WatchedQueue]
    readers: Mapping[str, QueueReader]
    dynamodb: DynamoDBClient
    table: str
    clock: Callable[[], float]
    proxies: ProxyReader | None = None

    def run(self, seconds: float) -> Iterator[QueueOutcome]:
        """Read one queue after the other within ``seconds``; each has its share, the order rotates."""
        ends_at = self.clock() + seconds
        first = int(self.clock() // 60) % len(self.queues) if self.queues else 0
        pending = [*self.queues[first:], *self.queues[:first]]
        while pending:
            share = (ends_at - self.clock()) / len(pending)
            queue = pending.pop(0)
            try:
                yield self._observe(queue, min(share, _MAX_SECONDS_PER_QUEUE))
            except Exception as error:  # reported; the other queues are read
                text = " ".join(str(error).split())
                yield QueueOutcome(queue, error=text or type(error).__name__)

    def _observe(self, queue: WatchedQueue, seconds: float) -> QueueOutcome:
        if seconds <= 0:
            raise TimeoutError("no time left for this queue")
        if queue.kind == HTTP and self.proxies is not None:
            http, error = self.proxies.observe(queue, seconds)
            return QueueOutcome(queue, error=error, http=http)
        if queue.kind not in self.readers:
            raise ValueError(f"queue kind must be {alternatives(self.readers)}, not {queue.kind!r}")
        history = self._load_history(queue)
        state, history = self.readers[queue.kind].observe(queue, history, self.clock(), seconds)
        self._save_history(queue, history)
        if state is not None:
            self.dynamodb.put_item(TableName=self.table, Item=queue_state.dump(queue.group, state))
        return QueueOutcome(queue, state)

    def _load_history(self, queue: WatchedQueue) -> QueueHistory:
        """Return the queue's history; empty if it is malformed or belongs to a former queue."""
        response = self.dynamodb.get_item(TableName=self.table, Key=_key(queue.group), ConsistentRead=True)
        item = response.get("Item", {})
        if item.get("of") != {"S": _identity(queue)}:
            return QueueHistory()
        try:
            return queue_history.parse(item["text"]["S"])
        except (KeyError, ValueError):
            return QueueHistory()

    def _save_history(self, queue: WatchedQueue, history: QueueHistory) -> None:
        item: dict[str, Any] = {
            **_key(queue.group),
            "of": {"S": _identity(queue)},
            "text": {"S": queue_history.dumps(history)},
            names.TTL: {"N": str(int(history.at or self.clock()) + queue_state.RETENTION_SECONDS)},
        }
        self.dynamodb.put_item(TableName=self.table, Item=item)


def _key(group: str) -> dict[str, Any]:
    return {**queue_state.key(group), names.REGISTRY_SORT_KEY: {"S": _HISTORY}}


def _identity(queue: WatchedQueue) -> str:
    return f"{queue.kind} {queue.name} {queue.location}"


def build(
    client: Callable[[str], Any],
    queues: Sequence[WatchedQueue],
    table: str,
    clock: Callable[[], float],
    stack: str = "",
    instance_arns: str = "",
) -> QueueWatcher:
    """Return the watcher; ``client`` returns the boto3 client of a service by its name.

    ``stack`` and ``instance_arns``, the ARN of instances up to the instance id, are needed for proxies only.
    """
    kinds = {queue.kind for queue in queues}
    readers = {kind: reader(client) for kind, reader in KINDS.items() if kind in kinds}
    watched = proxies.build(client, stack, table, instance_arns, clock) if HTTP in kinds else None
    return QueueWatcher(queues, readers, client("dynamodb"), table, clock, watched)
