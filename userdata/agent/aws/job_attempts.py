"""A job's attempts in the job table: the DynamoDB adapter of ``contracts.jobs.attempt``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contracts.jobs.attempt import JobAttempt, dump, key, parse
from userdata.agent.aws.clients import aws_errors

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class JobAttemptTable:
    """One job's attempts, for the instance that holds its lease."""

    def __init__(self, dynamodb: DynamoDBClient, table: str, job: str) -> None:
        self._dynamodb = dynamodb
        self._table = table
        self._job = job

    def read(self, token: int) -> JobAttempt | None:
        """Return the recorded attempt; None if there is none.

        Raises:
            AgentError: DynamoDB returned an error or is unreachable.
        """
        with aws_errors(f"job table {self._table}, history of {self._job}"):
            item = self._dynamodb.get_item(
                TableName=self._table, Key=key(self._job, token), ConsistentRead=True
            ).get("Item")
        try:
            attempt = parse(item) if item else None
        except ValueError:
            return None
        return attempt if attempt and attempt.token == token else None

    def write(self, attempt: JobAttempt) -> None:
        """Write an attempt.

        Raises:
            AgentError: DynamoDB returned an error or is unreachable.
        """
        with aws_errors(f"job table {self._table}, history of {self._job}"):
            self._dynamodb.put_item(TableName=self._table, Item=dump(self._job, attempt))
