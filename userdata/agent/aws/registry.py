"""Client of the worker registry: one item for each worker slot of this instance."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal

from contracts.registry import item as registry_item
from contracts.registry.item import Progress, WorkerState
from contracts.registry.tenant_wait import TenantWait
from contracts.registry.worker_report import WorkerReport
from userdata.agent.aws.clients import AwsError, aws_errors
from userdata.agent.machine import log

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class WorkerRegistry:
    """Writes the items of this instance's workers to its partition: one UpdateItem per slot and heartbeat."""

    def __init__(self, client: DynamoDBClient, table: str, partition: str, instance: str) -> None:
        self._client = client
        self._table = table
        self._partition = partition
        self._instance = instance

    def record_heartbeat(
        self,
        slots: Collection[int],
        now: float,
        state: WorkerState,
        deadline: float | None,
        progress: Progress | None = None,
        reports: Mapping[int, WorkerReport] | None = None,
        started: Collection[int] = (),
        tenant_waits: tuple[TenantWait, ...] | None = None,
    ) -> frozenset[int]:
        """Record a heartbeat of the workers in ``slots`` at ``now`` (epoch seconds, stored as whole seconds).

        ``reports`` are the worker reports by slot; workers in ``started`` have started since their last
        heartbeat; ``tenant_waits`` are those of a shared host. Returns the slots whose workers are to be
        restarted on request.

        Raises:
            AgentError: DynamoDB is unreachable or rejected all; the next heartbeat repeats everything.
        """
        expires_at = None if deadline is None else int(deadline)
        restart_slots, failed = set(), dict[int, AwsError]()
        for slot in slots:
            update = registry_item.heartbeat(
                self._instance,
                int(now),
                state,
                expires_at,
                progress,
                (reports or {}).get(slot),
                tenant_waits,
                is_first=slot in started,
            )
            try:
                # ALL_NEW returns a requested restart without another request.
                response = self._call("update_item", slot, ReturnValues="ALL_NEW", **update)
            except AwsError as error:
                if not error.code:
                    raise  # unreachable, for all slots
                failed[slot] = error
                continue
            if registry_item.is_restart_requested(response.get("Attributes", {})):
                restart_slots.add(slot)
        for slot, failure in failed.items():
            if len(failed) == len(slots):
                raise failure
            log.warning("heartbeat of a worker not written", slot=slot, error=str(failure))
        return frozenset(restart_slots)

    def deregister(self, slot: int) -> None:
        """Delete the item of a worker that has ended: its heartbeat need not expire first."""
        self._call("delete_item", slot)

    def _call(
        self, operation: Literal["update_item", "delete_item"], slot: int, **arguments: object
    ) -> dict[str, Any]:
        key = registry_item.key(self._partition, self._instance, slot)
        with aws_errors(f"registry {self._table}, worker {self._instance}/{slot}"):
            response: dict[str, Any] = getattr(self._client, operation)(
                TableName=self._table, Key=key, **arguments
            )
        return response
