"""A job's history in the job table, as its instance writes it: the adapter of ``contracts.jobs.attempt``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contracts.jobs.attempt import JobAttempt, dump, key, parse
from userdata.agent.aws.clients import asking

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class JobAttemptTable:
    """One job's attempts, for the instance that has it."""

    def __init__(self, dynamodb: DynamoDBClient, table: str, job: str) -> None:
        self._dynamodb = dynamodb
        self._table = table
        self._job = job

    def read(self, token: int) -> JobAttempt | None:
        """Return what has been written of an attempt; None where nothing was.

        Raises:
            AgentError: the table does not answer.
        """
        with asking(f"job table {self._table}, history of {self._job}"):
            item = self._dynamodb.get_item(
                TableName=self._table, Key=key(self._job, token), ConsistentRead=True
            ).get("Item")
        try:
            found = parse(item) if item else None
        except ValueError:
            return None
        return found if found and found.token == token else None

    def write(self, attempt: JobAttempt) -> None:
        """Write all of an attempt.

        Raises:
            AgentError: the table does not answer.
        """
        with asking(f"job table {self._table}, history of {self._job}"):
            self._dynamodb.put_item(TableName=self._table, Item=dump(self._job, attempt))
