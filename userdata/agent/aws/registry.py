"""The worker registry: one item for each worker slot of this instance."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from contracts.registry import item as registry_item
from contracts.registry.item import Progress, WorkerState
from contracts.registry.worker_report import Pulse
from userdata.agent.aws.clients import asking

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class WorkerRegistry:
    """Writes this instance's workers; one UpdateItem a heartbeat and slot."""

    def __init__(self, client: DynamoDBClient, table: str, group: str, instance: str) -> None:
        self._client = client
        self._table = table
        self._group = group
        self._instance = instance

    def beat(
        self,
        slots: Iterable[int],
        now: float,
        state: WorkerState,
        deadline: float | None,
        progress: Progress | None = None,
        pulses: Mapping[int, Pulse] | None = None,
        first: Collection[int] = (),
    ) -> frozenset[int]:
        """Record that the workers in ``slots`` live at ``now`` (epoch seconds), in whole seconds.

        ``pulses`` are what they tell, by slot; those in ``first`` have started since their last beat. Returns
        the slots whose workers somebody wishes to be started anew.

        Raises:
            AgentError: DynamoDB refused or cannot be reached; the next beat says everything again.
        """
        until = None if deadline is None else int(deadline)
        wished = set()
        for slot in slots:
            update = registry_item.heartbeat(
                self._instance,
                int(now),
                state,
                until,
                progress,
                (pulses or {}).get(slot),
                is_first=slot in first,
            )
            # The row as it is now: a wish costs no request of its own.
            answer = self._call("update_item", slot, ReturnValues="ALL_NEW", **update)
            if registry_item.wished(answer.get("Attributes", {})):
                wished.add(slot)
        return frozenset(wished)

    def leave(self, slot: int) -> None:
        """Remove a worker that has ended, so that nobody waits for its heartbeats to grow old."""
        self._call("delete_item", slot)

    def _call(
        self, operation: Literal["update_item", "delete_item"], slot: int, **arguments: object
    ) -> dict[str, Any]:
        key = registry_item.key(self._group, self._instance, slot)
        with asking(f"registry {self._table}, worker {self._instance}/{slot}"):
            answer: dict[str, Any] = getattr(self._client, operation)(
                TableName=self._table, Key=key, **arguments
            )
        return answer
