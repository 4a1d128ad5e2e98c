"""The worker registry.

One item for each worker slot of this instance, as docs/architecture.md lays it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal

from userdata.agent.aws.clients import as_agent_error

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

State = Literal["waiting", "ready", "draining"]
"""``waiting``: a training instance that stands by for its job's volume."""

# Long enough for the controller to have seen that the heartbeats stopped, then DynamoDB removes the item.
EXPIRES_AFTER_SECONDS: Final = 3600


class Registry:
    """Writes this instance's workers; one UpdateItem a heartbeat and slot."""

    def __init__(self, client: DynamoDBClient, table: str, group: str, instance: str) -> None:
        self._client = client
        self._table = table
        self._group = group
        self._instance = instance

    def beat(self, slots: Iterable[int], now: float, state: State, deadline: float | None) -> None:
        """Record that the workers in ``slots`` live at ``now`` (epoch seconds).

        Raises:
            AgentError: DynamoDB refused or cannot be reached; the next beat says everything again.
        """
        values = {
            ":instance": {"S": self._instance},
            ":now": {"N": str(int(now))},
            ":state": {"S": state},
            ":expires": {"N": str(int(now) + EXPIRES_AFTER_SECONDS)},
        }
        update = (
            "SET instance = :instance, since = if_not_exists(since, :now), heartbeat = :now, "
            "#state = :state, #expires = :expires"
        )
        names = {"#state": "state", "#expires": "expires"}
        if deadline is None:
            update += " REMOVE deadline"
        else:
            values[":deadline"] = {"N": str(int(deadline))}
            update += ", deadline = :deadline"
        for slot in slots:
            self._call(
                "update_item",
                slot,
                UpdateExpression=update,
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=values,
            )

    def leave(self, slot: int) -> None:
        """Remove a worker that has ended, so that nobody waits for its heartbeats to grow old."""
        self._call("delete_item", slot)

    def _call(self, operation: Literal["update_item", "delete_item"], slot: int, **arguments: object) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        key = {"group": {"S": self._group}, "worker": {"S": f"{self._instance}/{slot}"}}
        try:
            getattr(self._client, operation)(TableName=self._table, Key=key, **arguments)
        except (BotoCoreError, ClientError) as error:
            raise as_agent_error(f"registry {self._table}, worker {self._instance}/{slot}", error) from None
