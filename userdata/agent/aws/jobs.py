"""A training job's state in the job table, and the word to the controller that its run has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from contracts import codec
from contracts.jobs import item as job_item
from contracts.jobs.item import HostFaults, JobItem, JobState
from userdata.agent.aws.clients import AwsError, asking
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
    with asking(f"job table {table}, job {job}"):
        found = dynamodb.get_item(TableName=table, Key={"job": {"S": job}}, ConsistentRead=True)
    return dict(found.get("Item", {}))


@dataclass(eq=False)
class Jobs:
    """One job's state in its item (``contracts.jobs.item``), beside its lease.

    A state counts for the revision that it was written for: a new revision in the stack file is a new run.
    """

    dynamodb: DynamoDBClient
    ssm: SSMClient
    table: str
    job: str
    revision: str
    finished_parameter: str
    clock: Clock

    def finished(self) -> bool:
        """Tell whether this revision of the job is done or has failed for good."""
        return self._row().state_of(self.revision) in ("done", "failed")

    def mark(self, state: JobState, reason: str = "") -> None:
        """Write the state and why. A finished job stays finished, whatever a late instance says.

        One that has failed may still turn out to be done; people alone let it begin again.
        """
        values: dict[str, Any] = {
            ":state": {"S": state},
            ":revision": {"S": self.revision},
            ":now": {"N": str(int(self.clock.wall()))},
            ":done": {"S": "done"},
            **({":failed": {"S": "failed"}} if state == "running" else {}),
            ":reason": {"S": reason[:_LONGEST_REASON]},
        }
        late = " AND #state <> :failed" if state == "running" else ""
        try:
            self._update(
                UpdateExpression=(
                    "SET #state = :state, revision = :revision, changed = :now, #reason = :reason"
                ),
                ConditionExpression=(
                    f"attribute_not_exists(#state) OR #state <> :done{late} OR revision <> :revision"
                ),
                ExpressionAttributeNames={"#state": "state", "#reason": "reason"},
                ExpressionAttributeValues=values,
            )
        except AwsError as error:
            if error.code != "ConditionalCheckFailedException":
                raise
            log.warning("job has ended already", job=self.job, refused=state)
            return
        log.info("job marked", job=self.job, state=state, reason=reason)

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
        before = self._row().host_faults
        in_a_row = before.revision == self.revision and int(checkpoint) <= before.checkpoint
        count = 1 + (before.count if in_a_row else 0)
        faults = HostFaults(self.revision, count, int(checkpoint))
        self._update(
            UpdateExpression="SET hostFaults = :said",
            ExpressionAttributeValues={":said": codec.attribute(faults)},
        )
        log.warning("host's fault counted", job=self.job, count=count)
        return count

    def answers(self) -> bool:
        """Tell whether AWS answers at all; a refusal is an answer."""
        try:
            self._item()
        except AwsError as error:
            if not error.code:
                log.warning("AWS does not answer", error=str(error))
                return False
        return True

    def _row(self) -> JobItem:
        return job_item.parse(self._item())

    def _item(self) -> dict[str, Any]:
        return item(self.dynamodb, self.table, self.job)

    def take_down(self) -> None:
        """Say that this revision has ended.

        The controller, the one actuator, lets go of group, fleet and fallback, unless the stack asks for
        another revision by now: of that one nothing has been said.
        """
        self._put_parameter(self.finished_parameter, self.revision)
        log.info("said that the run has ended", parameter=self.finished_parameter, revision=self.revision)

    def _put_parameter(self, name: str, value: str) -> None:
        with asking(f"parameter {name}"):
            self.ssm.put_parameter(Name=name, Value=value, Type="String", Overwrite=True)

    def _update(self, **arguments: Any) -> None:
        """Update the job's item; raise `AwsError`."""
        with asking(f"job table {self.table}, job {self.job}"):
            self.dynamodb.update_item(TableName=self.table, Key={"job": {"S": self.job}}, **arguments)
