"""A training job's state in the job table, and the word to the controller that its run has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from contracts import codec
from contracts.jobs import item as job_item
from contracts.jobs.item import HostFaults, JobItem, JobState
from userdata.agent.aws.clients import as_agent_error
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ssm import SSMClient

_LONGEST_REASON: Final = 500


def item(dynamodb: DynamoDBClient, table: str, job: str) -> dict[str, Any]:
    """Return a job's item as it stands; empty where there is none.

    Raises:
        AgentError: the table refused or does not answer.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        found = dynamodb.get_item(TableName=table, Key={"job": {"S": job}}, ConsistentRead=True)
    except (BotoCoreError, ClientError) as error:
        raise as_agent_error(f"job table {table}, job {job}", error) from None
    return dict(found.get("Item", {}))


class Jobs:
    """One job's state in its item (``contracts.jobs.item``), beside its lease.

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
        self.revision = revision
        self._finished_parameter = finished_parameter
        self._clock = clock

    def finished(self) -> bool:
        """Tell whether this revision of the job is done or has failed for good."""
        return self._row().state_of(self.revision) in ("done", "failed")

    def mark(self, state: JobState, reason: str = "") -> None:
        """Write the state and why. A finished job stays finished, whatever a late instance says.

        One that has failed may still turn out to be done; people alone let it begin again.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        values: dict[str, Any] = {
            ":state": {"S": state},
            ":revision": {"S": self.revision},
            ":now": {"N": str(int(self._clock.wall()))},
            ":done": {"S": "done"},
            **({":failed": {"S": "failed"}} if state == "running" else {}),
            ":reason": {"S": reason[:_LONGEST_REASON]},
        }
        late = " AND #state <> :failed" if state == "running" else ""
        try:
            self._dynamodb.update_item(
                TableName=self._table,
                Key={"job": {"S": self._job}},
                UpdateExpression=(
                    "SET #state = :state, revision = :revision, changed = :now, #reason = :reason"
                ),
                ConditionExpression=(
                    f"attribute_not_exists(#state) OR #state <> :done{late} OR revision <> :revision"
                ),
                ExpressionAttributeNames={"#state": "state", "#reason": "reason"},
                ExpressionAttributeValues=values,
            )
        except self._dynamodb.exceptions.ConditionalCheckFailedException:
            log.warning("job has ended already", job=self._job, refused=state)
            return
        except (BotoCoreError, ClientError) as error:
            raise as_agent_error(f"job table {self._table}, job {self._job}", error) from None
        log.info("job marked", job=self._job, state=state, reason=reason)

    def retries(self) -> int:
        """Return how often people have let this revision begin again after it had failed.

        Raises:
            AgentError: the table does not answer.
        """
        return self._row().retries_of(self.revision)

    def count_host_fault(self, checkpoint: float) -> int:
        """Count a host's fault; return how many there were in a row, this one included.

        In a row: of the same revision, and the newest checkpoint (``checkpoint``, epoch seconds) is no
        younger than the time before. Only who holds the lease counts, one at a time.

        Raises:
            AgentError: the table does not answer.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        before = self._row().host_faults
        in_a_row = before.revision == self.revision and int(checkpoint) <= before.checkpoint
        count = 1 + (before.count if in_a_row else 0)
        faults = HostFaults(self.revision, count, int(checkpoint))
        try:
            self._dynamodb.update_item(
                TableName=self._table,
                Key={"job": {"S": self._job}},
                UpdateExpression="SET hostFaults = :said",
                ExpressionAttributeValues={":said": codec.attribute(faults)},
            )
        except (BotoCoreError, ClientError) as error:
            raise as_agent_error(f"job table {self._table}, job {self._job}", error) from None
        log.warning("host's fault counted", job=self._job, count=count)
        return count

    def answers(self) -> bool:
        """Tell whether AWS answers at all; a refusal is an answer."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self._dynamodb.get_item(TableName=self._table, Key={"job": {"S": self._job}})
        except ClientError:
            return True
        except BotoCoreError as error:
            log.warning("AWS does not answer", error=str(error))
            return False
        return True

    def _row(self) -> JobItem:
        return job_item.parse(self._item())

    def _item(self) -> dict[str, Any]:
        return item(self._dynamodb, self._table, self._job)

    def take_down(self) -> None:
        """Say that this revision has ended.

        The controller, the one actuator, lets go of group, fleet and fallback, unless the stack asks for
        another revision by now: of that one nothing has been said.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        name = self._finished_parameter
        try:
            self._ssm.put_parameter(Name=name, Value=self.revision, Type="String", Overwrite=True)
        except (BotoCoreError, ClientError) as error:
            raise as_agent_error(f"parameter {name}", error) from None
        log.info("said that the run has ended", parameter=name, revision=self.revision)
