"""A training job's state in the job table, and the word to the controller that its run has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from userdata.agent.aws.clients import as_agent_error
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ssm import SSMClient

JobState = Literal["running", "done", "failed"]


class Jobs:
    """One job's ``state`` (S), ``revision`` (S) and ``changed`` (N, epoch seconds), beside the lease.

    A state counts for the revision that it was written for: a new revision in the stack file is a new run.
    """

    def __init__(
        self,
        dynamodb: DynamoDBClient,
        ssm: SSMClient,
        table: str,
        job: str,
        revision: str,
        finished_parameter: str,
        clock: Clock,
    ) -> None:
        self._dynamodb = dynamodb
        self._ssm = ssm
        self._table = table
        self._job = job
        self._revision = revision
        self._finished_parameter = finished_parameter
        self._clock = clock

    def finished(self) -> bool:
        """Tell whether this revision of the job is done or has failed for good."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            item = self._dynamodb.get_item(
                TableName=self._table, Key={"job": {"S": self._job}}, ConsistentRead=True
            ).get("Item", {})
        except (BotoCoreError, ClientError) as error:
            raise as_agent_error(f"job table {self._table}, job {self._job}", error) from None
        same = item.get("revision", {}).get("S") == self._revision
        return same and item.get("state", {}).get("S") in ("done", "failed")

    def mark(self, state: JobState) -> None:
        """Write the state. A finished job stays finished, whatever a late instance says."""
        from botocore.exceptions import BotoCoreError, ClientError

        values: dict[str, Any] = {
            ":state": {"S": state},
            ":revision": {"S": self._revision},
            ":now": {"N": str(int(self._clock.wall()))},
            ":done": {"S": "done"},
        }
        try:
            self._dynamodb.update_item(
                TableName=self._table,
                Key={"job": {"S": self._job}},
                UpdateExpression="SET #state = :state, revision = :revision, changed = :now",
                ConditionExpression=(
                    "attribute_not_exists(#state) OR #state <> :done OR revision <> :revision"
                ),
                ExpressionAttributeNames={"#state": "state"},
                ExpressionAttributeValues=values,
            )
        except self._dynamodb.exceptions.ConditionalCheckFailedException:
            log.warning("job is done already", job=self._job, refused=state)
            return
        except (BotoCoreError, ClientError) as error:
            raise as_agent_error(f"job table {self._table}, job {self._job}", error) from None
        log.info("job marked", job=self._job, state=state)

    def take_down(self) -> None:
        """Say that this revision has ended.

        The controller, the one actuator, lets go of group, fleet and fallback, unless the stack asks for
        another revision by now: of that one nothing has been said.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        name = self._finished_parameter
        try:
            self._ssm.put_parameter(Name=name, Value=self._revision, Type="String", Overwrite=True)
        except (BotoCoreError, ClientError) as error:
            raise as_agent_error(f"parameter {name}", error) from None
        log.info("said that the run has ended", parameter=name, revision=self._revision)
