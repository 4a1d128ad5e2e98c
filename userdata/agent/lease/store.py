"""The lease in the job's item in DynamoDB: who may work on the job, and which volume is its good one.

Attributes: ``holder`` (S, instance id; absent: free), ``leaseUntil`` (N, epoch seconds), ``token`` (N, grows
by one with every acquisition); of a job with a data volume ``volume`` (S), ``writer`` (N). The item must not
have a DynamoDB TTL: it is the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from contracts.jobs import item as job_item
from userdata.agent.aws.clients import AwsError, asking
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import LeaseLostError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# Well above the lag of EC2's descriptions (seconds), so that what the last holder did is visible to the next
# one, and above the clock error between two instances (milliseconds, the Amazon Time Sync Service).
LEASE_SECONDS: Final = 120


@dataclass(frozen=True)
class Lease:
    """The job's item as its holder knows it; ``writer``: the token under which the home was last mounted."""

    token: int
    volume: str | None
    writer: int


class DynamoLease:
    """One job's lease in the job table, seen by one instance. Each method is one conditional write.

    All but ``acquire`` raise `LeaseLostError` when it is no longer ours.
    """

    def __init__(self, client: DynamoDBClient, table: str, job: str, instance: str, clock: Clock) -> None:
        self._client = client
        self._table = table
        self._job = job
        self._instance = instance
        self._clock = clock

    def acquire(self) -> Lease | None:
        """Take the lease under a new token; None while another instance holds it and it has not run out."""
        now = self._clock.wall()
        try:
            item = self._update(
                "SET holder = :me, leaseUntil = :until ADD #token :one",
                "attribute_not_exists(holder) OR holder = :me OR leaseUntil < :now",
                {":me": self._me, ":until": self._until(), ":one": {"N": "1"}, ":now": {"N": str(int(now))}},
            )
        except LeaseLostError:
            return None
        row = job_item.parse(item)
        return Lease(row.token, row.volume or None, row.writer)

    def renew(self, token: int) -> None:
        """Extend the lease by its full length."""
        self._held(token, "SET leaseUntil = :until", {})

    def claim(self, token: int) -> None:
        """Become the writer of the home.

        Extends the lease, too, so that the next holder comes a full lease after this.
        """
        self._held(token, "SET leaseUntil = :until, writer = :token", {})

    def commit(self, token: int, volume: str) -> None:
        """Make ``volume`` home and become its writer."""
        self._held(
            token, "SET leaseUntil = :until, writer = :token, volume = :volume", {":volume": {"S": volume}}
        )

    def adopt(self, token: int, new_token: int, volume: str) -> None:
        """Make ``volume`` home where the item names none; by ``new_token`` no older snapshot counts."""
        self._held(
            token,
            "SET leaseUntil = :until, #token = :new, writer = :writer, volume = :volume",
            {":new": {"N": str(new_token)}, ":writer": {"N": str(new_token - 1)}, ":volume": {"S": volume}},
            condition=" AND attribute_not_exists(volume)",
        )

    def keep(self, token: int, dataset: str, snapshot: str) -> None:
        """Let ``snapshot`` be the one of ``dataset``, once, and forget the home that it was taken of."""
        self._held(
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
            {":me": self._me, ":token": {"N": str(token)}},
        )

    @property
    def _me(self) -> dict[str, str]:
        return {"S": self._instance}

    def _until(self) -> dict[str, str]:
        return {"N": str(int(self._clock.wall()) + LEASE_SECONDS)}

    def _held(
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
            {":me": self._me, ":token": {"N": str(token)}, ":until": self._until(), **values},
            names,
        )

    def _update(
        self, update: str, condition: str, values: dict[str, Any], names: dict[str, str] | None = None
    ) -> dict[str, Any]:
        try:
            with asking(f"job table {self._table}, job {self._job}"):
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
