"""Which snapshot of a prepared dataset counts: it stands in the job table, in the item of who prepares it.

The item's attribute is called as the dataset is (``imagenet@1``), so that each version has its own and none
is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contracts.agent.config import Prepared
from contracts.jobs.item import JobState
from userdata.agent.aws.clients import AwsError, asking
from userdata.agent.aws.jobs import Jobs, item
from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError, RefusedError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ec2 import EC2Client


def counted(dynamodb: DynamoDBClient, table: str, group: str) -> dict[str, str]:
    """Return the snapshots that count, by dataset, of what ``group`` has prepared."""
    found = item(dynamodb, table, group)
    return {name: value["S"] for name, value in found.items() if "@" in name}


def find(dynamodb: DynamoDBClient, ec2: EC2Client, table: str, prepared: Prepared) -> str:
    """Return the snapshot that a job's first volume is made from.

    Raises:
        AgentError: none counts yet; the controller starts nobody before.
        RefusedError: it was deleted.
    """
    snapshot = counted(dynamodb, table, prepared.group).get(prepared.dataset)
    if snapshot is None:
        raise AgentError(f"dataset {prepared.dataset}: {prepared.group} has not prepared it yet")
    try:
        with asking(f"snapshot {snapshot}"):
            ec2.describe_snapshots(SnapshotIds=[snapshot])
    except AwsError as error:
        if error.code == "InvalidSnapshot.NotFound":
            raise RefusedError(
                f"dataset {prepared.dataset}: its snapshot {snapshot} was deleted; raise prepare.version to "
                "have it prepared again"
            ) from None
        raise
    return snapshot


class BuilderJobs(Jobs):
    """A job that prepares a dataset: it is done when a snapshot counts, whatever the run's command says.

    ``made`` is whether the command has ended well, and no snapshot counts yet.
    """

    def __init__(self, prepared: Prepared, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._prepared = prepared
        self.made = False

    def is_kept(self) -> bool:
        """Tell whether a snapshot counts."""
        return self._prepared.dataset in counted(self.dynamodb, self.table, self.job)

    def finished(self) -> bool:
        """Tell whether a snapshot counts, or this run has failed for good."""
        return self.is_kept() or super().finished()

    def mark(self, state: JobState, reason: str = "") -> None:
        """Write the state; that the command is done is noted only."""
        self.made = state == "done"
        if not self.made:
            super().mark(state, reason)

    def mark_kept(self) -> None:
        """Write that it is done: a snapshot counts."""
        self.made = False
        super().mark("done")

    def take_down(self) -> None:
        """Say that the dataset is there, and let the own capacity go; nothing while there is one to keep."""
        if self.made:
            return
        if self.is_kept():
            name, dataset = self._prepared.parameter, self._prepared.dataset
            self._put_parameter(name, dataset)
            log.info("said that the dataset is there", parameter=name, dataset=dataset)
        super().take_down()
