"""The experiments of a group, or the nodes of a job, in the job table: an item each, and the group's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from contracts.agent.nodes import JobNodes
from contracts.jobs import item as job_item
from contracts.jobs.item import JobItem
from userdata.agent.aws.clients import aws_errors
from userdata.agent.aws.jobs import Jobs
from userdata.agent.lease.experiment_selection import ExperimentLease
from userdata.agent.machine.errors import AgentError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

NAMES: Final = "experiments"
"""Attribute of the group's item: the names of its experiments (L of S)."""
_BATCH: Final = 100
"""Maximum items of one BatchGetItem (API reference)."""
_WAITS: Final = (0.0, 0.1, 0.2, 0.4, 0.8)
"""Seconds before each attempt to read what DynamoDB has left out: its reference asks for a backoff."""


class ExperimentJobs(Jobs):
    """The state of one experiment; its end does not end the group's run."""

    def publish_finished(self) -> None:
        """Do nothing: the instance continues with the next experiment."""


class GroupJobs(Jobs):
    """The state of the run of all experiments of a group."""

    def record_names(self, experiments: Sequence[str]) -> None:
        """Write the names of the experiments to the group's item."""
        self._update(
            UpdateExpression=f"SET {NAMES} = :names",
            ExpressionAttributeValues={":names": {"L": [{"S": name} for name in experiments]}},
        )


@dataclass(eq=False)
class NodeJobs(Jobs):
    """The job's state as its node ``node`` reads and writes it; empty before this instance is one.

    Any node may end the job. Host faults are counted in the node's own item: several nodes that are lost
    together are not several hosts in a row. So is the end of a node that does not end the job.
    """

    node: str = ""

    def record_nodes(self, nodes: JobNodes) -> None:
        """Write how many nodes the job has, for ``gpu-spot jobs``."""
        self._update(
            UpdateExpression="SET nodes = :nodes",
            ExpressionAttributeValues={
                ":nodes": {"M": {"min": {"N": str(nodes.min)}, "max": {"N": str(nodes.max)}}}
            },
        )

    def count_host_fault(self, checkpoint: float) -> int:
        """See `Jobs.count_host_fault`."""
        return self._of_node().count_host_fault(checkpoint)

    def end_node(self) -> None:
        """See `Jobs.end_node`; the state is in the node's item."""
        self._of_node().mark("done")

    def _of_node(self) -> Jobs:
        return Jobs(
            self.dynamodb, self.ssm, self.table, self.node, self.revision, self.finished_parameter, self.clock
        )


class ExperimentTable:
    """The leases of the experiments ``names`` in a run of ``revision``."""

    def __init__(
        self,
        dynamodb: DynamoDBClient,
        table: str,
        names: Sequence[str],
        revision: str,
        sleep: Callable[[float], None],
    ) -> None:
        self._dynamodb = dynamodb
        self._table = table
        self._names = names
        self._revision = revision
        self._sleep = sleep

    def read_leases(self) -> dict[str, ExperimentLease]:
        """Return the lease of each experiment; one call per hundred items, more if DynamoDB throttles.

        Raises:
            AgentError: DynamoDB returned an error or is unreachable.
        """
        items = {item["job"]["S"]: item for item in self._items()}
        return {name: self._lease(job_item.parse(items.get(name, {}))) for name in self._names}

    def _lease(self, row: JobItem) -> ExperimentLease:
        state = row.state_of(self._revision)
        return ExperimentLease(
            has_started=row.revision == self._revision,
            is_finished=state in ("done", "failed"),
            has_failed=state == "failed",
            holder=row.holder,
            expires_at=row.lease_expires_at,
        )

    def _items(self) -> Iterator[Mapping[str, Any]]:
        keys: list[Any] = [{"job": {"S": name}} for name in self._names]
        for start in range(0, len(keys), _BATCH):
            pending = keys[start : start + _BATCH]
            for wait in _WAITS:
                self._sleep(wait)
                with aws_errors(f"job table {self._table}"):
                    response = self._dynamodb.batch_get_item(
                        RequestItems={self._table: {"Keys": pending, "ConsistentRead": True}}
                    )
                yield from response["Responses"].get(self._table, ())
                unprocessed = response.get("UnprocessedKeys", {}).get(self._table)
                pending = list(unprocessed["Keys"]) if unprocessed else []
                if not pending:
                    break
            else:
                raise AgentError(
                    f"job table {self._table}: {len(pending)} items not read because of throttling"
                )
