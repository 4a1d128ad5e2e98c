"""The snapshots of prepared datasets, in the job table's item of the job that prepares them.

The attribute has the name of the dataset (``imagenet@1``): each version has its own attribute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contracts.agent.config import Prepared
from contracts.jobs.item import JobState
from userdata.agent.aws.clients import AwsError, aws_errors
from userdata.agent.aws.jobs import Jobs, read_item
from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError, RefusedError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ec2 import EC2Client


def read_snapshots(dynamodb: DynamoDBClient, table: str, group: str) -> dict[str, str]:
    """Return the snapshots that ``group`` has prepared, by dataset."""
    item = read_item(dynamodb, table, group)
    return {name: value["S"] for name, value in item.items() if "@" in name}


def find_snapshot(dynamodb: DynamoDBClient, ec2: EC2Client, table: str, prepared: Prepared) -> str:
    """Return the snapshot from which a job's first volume is created.

    Raises:
        AgentError: the dataset is not prepared yet; the controller launches no instance before it is.
        RefusedError: the snapshot was deleted.
    """
    snapshot = read_snapshots(dynamodb, table, prepared.group).get(prepared.dataset)
    if snapshot is None:
        raise AgentError(f"dataset {prepared.dataset}: {prepared.group} has not prepared it yet")
    try:
        with aws_errors(f"snapshot {snapshot}"):
            ec2.describe_snapshots(SnapshotIds=[snapshot])
    except AwsError as error:
        if error.code == "InvalidSnapshot.NotFound":
            raise RefusedError(
                f"dataset {prepared.dataset}: its snapshot {snapshot} was deleted; raise prepare.version to "
                "prepare it again"
            ) from None
        raise
    return snapshot


class BuilderJobs(Jobs):
    """A job that prepares a dataset: it is done when its snapshot is recorded, not when its command ends.

    ``is_command_done``: the command has succeeded, and the snapshot is not recorded yet.
    """

    def __init__(self, prepared: Prepared, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._prepared = prepared
        self.is_command_done = False

    def has_snapshot(self) -> bool:
        """Return whether the snapshot is recorded."""
        return self._prepared.dataset in read_snapshots(self.dynamodb, self.table, self.job)

    def is_finished(self) -> bool:
        """Return whether the snapshot is recorded or this run has failed permanently."""
        return self.has_snapshot() or super().is_finished()

    def mark(self, state: JobState, reason: str = "") -> None:
        """Write the state; the state ``done`` is only noted in ``is_command_done``."""
        self.is_command_done = state == "done"
        if not self.is_command_done:
            super().mark(state, reason)

    def mark_snapshot_recorded(self) -> None:
        """Write the state ``done``: the snapshot is recorded."""
        self.is_command_done = False
        super().mark("done")

    def publish_finished(self) -> None:
        """Publish the prepared dataset and that the run has finished; not before the snapshot is recorded."""
        if self.is_command_done:
            return
        if self.has_snapshot():
            name, dataset = self._prepared.parameter, self._prepared.dataset
            self._put_parameter(name, dataset)
            log.info("dataset reported prepared", parameter=name, dataset=dataset)
        super().publish_finished()
