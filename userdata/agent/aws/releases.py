"""From what this instance's workers are to be started: the health checker's row in the worker registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contracts.group import release
from contracts.group.release import WorkerRelease
from userdata.agent.aws.clients import asking
from userdata.agent.machine.errors import AgentError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def read(client: DynamoDBClient, table: str, group: str, instance: str) -> WorkerRelease | None:
    """Return the release, None where nobody has said any.

    Raises:
        AgentError: DynamoDB refused or cannot be reached, or the row makes no sense.
    """
    what = f"release of {group} in {table}"
    with asking(what):
        answer = client.get_item(TableName=table, Key=release.key(group), ConsistentRead=True)
    if "Item" not in answer:
        return None
    try:
        return release.parse(answer["Item"]).of(instance)
    except ValueError as error:
        raise AgentError(f"{what}: {error}") from None
