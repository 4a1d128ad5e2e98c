"""The lease in the job's DynamoDB item: which instance works on the job, and the job's current volume.

Attributes: ``holder`` (S, instance id; absent: free), ``leaseUntil`` (N, epoch seconds), ``token`` (N, grows
by one with every acquisition); for a job with a data volume ``volume`` (S), ``writer`` (N). The item must not
have a DynamoDB TTL: it is the source of truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from contracts.jobs import item as job_item
from userdata.agent.aws.clients import AwsError, aws_errors
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import LeaseLostError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# Well above the lag of EC2's descriptions (seconds), so that the next holder sees the changes of the previous
# one, and above the clock error between two instances (milliseconds, Amazon Time Sync Service).
LEASE_SECONDS: Final = 120


@dataclass(frozen=True)
class Lease:
    """The holder's view of the job's item.

    ``writer``: the token under which the current volume was last mounted.
    """

    token: int
    volume: str | None
    writer: int


class DynamoLease:
    """One job's lease in the job table, for one instance. Each method is one conditional write.

    All but ``acquire`` raise `LeaseLostError` if this instance no longer holds the lease.
    """

    def __init__(self, client: DynamoDBClient, table: str, job: str, instance: str, clock: Clock) -> None:
        self._client = client
        self._table = table
        self._job = job
        self._instance = instance
        self._clock = clock

    def acquire(self) -> Lease | None:
        """Acquire the lease under a new token; None if another instance holds it and it has not expired."""
        now = self._clock.wall()
        try:
            item = self._update(
                "SET holder = :me, leaseUntil = :until ADD #token :one",
                "attribute_not_exists(holder) OR holder = :me OR leaseUntil < :now",
                {
                    ":me": self._holder,
                    ":until": self._expires_at(),
                    ":one": {"N": "1"},
                    ":now": {"N": str(int(now))},
                },
            )
        except LeaseLostError:
            return None
        row = job_item.parse(item)
        return Lease(row.token, row.volume or None, row.writer)

    def renew(self, token: int) -> None:
        """Extend the lease by its full duration."""
        self._update_as_holder(token, "SET leaseUntil = :until", {})

    def claim(self, token: int) -> None:
        """Become the writer of the current volume.

        Also extends the lease: the next holder comes at least a full lease later.
        """
        self._update_as_holder(token, "SET leaseUntil = :until, writer = :token", {})

    def commit(self, token: int, volume: str) -> None:
        """Make ``volume`` the current volume and become its writer."""
        self._update_as_holder(
            token, "SET leaseUntil = :until, writer = :token, volume = :volume", {":volume": {"S": volume}}
        )

    def adopt(self, token: int, new_token: int, volume: str) -> None:
        """Make ``volume`` the current volume if the item has none.

        ``new_token`` invalidates older snapshots.
        """
        self._update_as_holder(
            token,
            "SET leaseUntil = :until, #token = :new, writer = :writer, volume = :volume",
            {":new": {"N": str(new_token)}, ":writer": {"N": str(new_token - 1)}, ":volume": {"S": volume}},
            condition=" AND attribute_not_exists(volume)",
        )

    def record_dataset_snapshot(self, token: int, dataset: str, snapshot: str) -> None:
        """Record ``snapshot`` for ``dataset``, once, and remove the current volume from the item."""
        self._update_as_holder(
            token,
            "SET leaseUntil = :until, #dataset = :snapshot REMOVE volume",
            {":snapshot": {"S": snapshot}},
            condition=" AND attribute_not_exists(#dataset)",
            names={"#dataset": dataset},
        )

    def release(self, token: int) -> None:
        """Remove the holder; token, volume and writer stay."""
        self._update(
            "REMOVE holder, leaseUntil",
            "holder = :me AND #token = :token",
            {":me": self._holder, ":token": {"N": str(token)}},
        )

    @property
    def _holder(self) -> dict[str, str]:
        return {"S": self._instance}

    def _expires_at(self) -> dict[str, str]:
        return {"N": str(int(self._clock.wall()) + LEASE_SECONDS)}

    def _update_as_holder(
        self,
        token: int,
        update: str,
        values: dict[str, Any],
        condition: str = "",
        names: dict[str, str] | None = None,
    ) -> None:
        self._update(
            update,
            f"holder = :me AND #token = :token{condition}",
            {":me": self._holder, ":token": {"N": str(token)}, ":until": self._expires_at(), **values},
            names,
        )

    def _update(
        self, update: str, condition: str, values: dict[str, Any], names: dict[str, str] | None = None
    ) -> dict[str, Any]:
        try:
            with aws_errors(f"job table {self._table}, job {self._job}"):
                return self._client.update_item(
                    TableName=self._table,
                    Key={"job": {"S": self._job}},
                    UpdateExpression=update,
                    ConditionExpression=condition,
                    ExpressionAttributeNames={"#token": "token", **(names or {})},
                    ExpressionAttributeValues=values,
                    ReturnValues="ALL_NEW",
                ).get("Attributes", {})
        except AwsError as error:
            if error.code == "ConditionalCheckFailedException":
                raise LeaseLostError(f"job {self._job}: another instance holds the lease") from None
            raise
