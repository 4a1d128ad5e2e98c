"""The result of a trial in its item of the job table; only the holder of the trial's lease writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contracts import codec
from contracts.agent.study import TrialResult
from contracts.jobs import item as job_item
from userdata.agent.aws.clients import AwsError, aws_errors
from userdata.agent.aws.jobs import read_item
from userdata.agent.machine.errors import LeaseLostError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class TrialTable:
    """One trial's result, in a run of ``revision``; for the instance that holds its lease."""

    def __init__(self, dynamodb: DynamoDBClient, table: str, name: str, instance: str, revision: str) -> None:
        self._dynamodb = dynamodb
        self._table = table
        self._name = name
        self._instance = instance
        self._revision = revision

    def read(self) -> TrialResult:
        """Return the result; that of a new trial if it is of another run.

        Raises:
            AgentError: DynamoDB returned an error or is unreachable.
        """
        result = job_item.parse(read_item(self._dynamodb, self._table, self._name)).trial
        return result if result.revision == self._revision else TrialResult(self._revision)

    def write(self, result: TrialResult) -> None:
        """Write the result.

        Raises:
            LeaseLostError: another instance holds the lease.
            AgentError: DynamoDB returned an error or is unreachable.
        """
        try:
            with aws_errors(f"job table {self._table}, job {self._name}"):
                self._dynamodb.update_item(
                    TableName=self._table,
                    Key={"job": {"S": self._name}},
                    UpdateExpression="SET trial = :trial",
                    ConditionExpression="holder = :me",
                    ExpressionAttributeValues={
                        ":trial": codec.attribute(result),
                        ":me": {"S": self._instance},
                    },
                )
        except AwsError as error:
            if error.code == "ConditionalCheckFailedException":
                raise LeaseLostError(f"job {self._name}: another instance holds the lease") from None
            raise
