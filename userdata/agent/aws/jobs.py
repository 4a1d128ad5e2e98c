"""A training job's state in the job table, and the parameter by which a run is reported finished."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from contracts import codec
from contracts.jobs import item as job_item
from contracts.jobs.item import HostFaults, JobItem, JobState
from userdata.agent.aws.clients import AwsError, aws_errors
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ssm import SSMClient

MAX_REASON_LENGTH: Final = 500


def read_item(dynamodb: DynamoDBClient, table: str, job: str) -> dict[str, Any]:
    """Return a job's item by a consistent read; empty if there is none.

    Raises:
        AgentError: DynamoDB returned an error or is unreachable.
    """
    with aws_errors(f"job table {table}, job {job}"):
        response = dynamodb.get_item(TableName=table, Key={"job": {"S": job}}, ConsistentRead=True)
    return dict(response.get("Item", {}))


@dataclass(eq=False)
class Jobs:
    """One job's state in its item (``contracts.jobs.item``), which also holds its lease.

    A state belongs to a revision: a new revision in the stack file is a new run.
    """

    dynamodb: DynamoDBClient
    ssm: SSMClient
    table: str
    job: str
    revision: str
    finished_parameter: str
    clock: Clock

    def is_finished(self) -> bool:
        """Return whether this revision of the job is done or has failed permanently."""
        return self._row().state_of(self.revision) in ("done", "failed")

    def mark(self, state: JobState, reason: str = "") -> None:
        """Write the state and its reason. A finished job stays finished if a late instance writes.

        A failed job can still become done; only an operator can restart it.
        """
        values: dict[str, Any] = {
            ":state": {"S": state},
            ":revision": {"S": self.revision},
            ":now": {"N": str(int(self.clock.wall()))},
            ":done": {"S": "done"},
            **({":failed": {"S": "failed"}} if state == "running" else {}),
            ":reason": {"S": reason[:MAX_REASON_LENGTH]},
        }
        unless_failed = " AND #state <> :failed" if state == "running" else ""
        try:
            self._update(
                UpdateExpression=(
                    "SET #state = :state, revision = :revision, changed = :now, #reason = :reason"
                ),
                ConditionExpression=(
                    f"attribute_not_exists(#state) OR #state <> :done{unless_failed} OR revision <> :revision"
                ),
                ExpressionAttributeNames={"#state": "state", "#reason": "reason"},
                ExpressionAttributeValues=values,
            )
        except AwsError as error:
            if error.code != "ConditionalCheckFailedException":
                raise
            log.warning("job already finished", job=self.job, rejected_state=state)
            return
        log.info("job state written", job=self.job, state=state, reason=reason)

    def end_node(self) -> None:
        """Record that this node's part of the training has ended; nothing to record for one instance."""

    def retries(self) -> int:
        """Return how often an operator has restarted this revision after it failed.

        Raises:
            AgentError: DynamoDB returned an error or is unreachable.
        """
        return self._row().retries_of(self.revision)

    def count_host_fault(self, checkpoint: float) -> int:
        """Count a host fault; return the number of consecutive ones, including this one.

        Consecutive: of the same revision, without a newer checkpoint (``checkpoint``, epoch seconds) since
        the last one. Only the lease holder counts.

        Raises:
            AgentError: DynamoDB returned an error or is unreachable.
        """
        before = self._row().host_faults
        in_a_row = before.revision == self.revision and int(checkpoint) <= before.checkpoint
        count = 1 + (before.count if in_a_row else 0)
        newest = max(int(checkpoint), before.checkpoint if in_a_row else 0)  # 0 if none can be read
        faults = HostFaults(self.revision, count, newest)
        self._update(
            UpdateExpression="SET hostFaults = :faults",
            ExpressionAttributeValues={":faults": codec.attribute(faults)},
        )
        log.warning("host fault counted", job=self.job, count=count)
        return count

    def is_aws_reachable(self) -> bool:
        """Return whether AWS is reachable; an error response counts as reachable."""
        try:
            self._item()
        except AwsError as error:
            if not error.code:
                log.warning("AWS unreachable", error=str(error))
                return False
        return True

    def _row(self) -> JobItem:
        return job_item.parse(self._item())

    def _item(self) -> dict[str, Any]:
        return read_item(self.dynamodb, self.table, self.job)

    def publish_finished(self) -> None:
        """Write this revision to the ``finished`` parameter.

        The controller then scales the groups to 0, unless the stack file has another revision by now.
        """
        self._put_parameter(self.finished_parameter, self.revision)
        log.info("run reported finished", parameter=self.finished_parameter, revision=self.revision)

    def _put_parameter(self, name: str, value: str) -> None:
        with aws_errors(f"parameter {name}"):
            self.ssm.put_parameter(Name=name, Value=value, Type="String", Overwrite=True)

    def _update(self, **arguments: Any) -> None:
        """Update the job's item; raise `AwsError`."""
        with aws_errors(f"job table {self.table}, job {self.job}"):
            self.dynamodb.update_item(TableName=self.table, Key={"job": {"S": self.job}}, **arguments)
