"""The experiments that share a group, in the job table: an item each, and the group's own beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from contracts.jobs import item as job_item
from userdata.agent.aws.clients import asking
from userdata.agent.aws.jobs import Jobs
from userdata.agent.lease.experiment_selection import Turn
from userdata.agent.machine.errors import AgentError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

NAMES: Final = "experiments"
"""In the group's item: their names (L of S), for whoever looks at them."""
_BATCH: Final = 100
"""The most items of one BatchGetItem (its API reference)."""
_MOST_TRIES: Final = 5


class ExperimentJobs(Jobs):
    """The state of one experiment: its end is not the group's."""

    def take_down(self) -> None:
        """Let nothing go: the instance takes the next one."""


class GroupJobs(Jobs):
    """The state of the run of all experiments of a group."""

    def name(self, experiments: Sequence[str]) -> None:
        """Write down which experiments there are."""
        self._update(
            UpdateExpression=f"SET {NAMES} = :names",
            ExpressionAttributeValues={":names": {"L": [{"S": one} for one in experiments]}},
        )


class ExperimentTable:
    """How the experiments ``names`` stand in a run of ``revision``."""

    def __init__(self, dynamodb: DynamoDBClient, table: str, names: Sequence[str], revision: str) -> None:
        self._dynamodb = dynamodb
        self._table = table
        self._names = names
        self._revision = revision

    def read(self) -> dict[str, Turn]:
        """Return how all of them stand; calls: one for each hundred, and more where DynamoDB throttles.

        Raises:
            AgentError: the table refused or does not answer.
        """
        found = {item["job"]["S"]: item for item in self._items()}
        return {name: turn(found.get(name, {}), self._revision) for name in self._names}

    def _items(self) -> Iterator[Mapping[str, Any]]:
        keys: list[Any] = [{"job": {"S": name}} for name in self._names]
        for start in range(0, len(keys), _BATCH):
            left = keys[start : start + _BATCH]
            for _ in range(_MOST_TRIES):
                with asking(f"job table {self._table}"):
                    answer = self._dynamodb.batch_get_item(
                        RequestItems={self._table: {"Keys": left, "ConsistentRead": True}}
                    )
                yield from answer["Responses"].get(self._table, ())
                missed = answer.get("UnprocessedKeys", {}).get(self._table)
                left = list(missed["Keys"]) if missed else []
                if not left:
                    break
            else:
                raise AgentError(f"job table {self._table}: {len(left)} items were not read, it throttles")


def turn(item: Mapping[str, Any], revision: str) -> Turn:
    """Return how the experiment of this item stands in a run of ``revision``; an empty one is new."""
    row = job_item.parse(item)
    state = row.state_of(revision)
    return Turn(
        has_begun=row.revision == revision,
        has_ended=state in ("done", "failed"),
        has_failed=state == "failed",
        holder=row.holder,
        until=row.lease_until,
    )
