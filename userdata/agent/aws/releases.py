"""The release of this instance's workers, from the health checker's item in the worker registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contracts.group import release
from contracts.group.release import WorkerRelease
from userdata.agent.aws.clients import aws_errors
from userdata.agent.machine.errors import AgentError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def read(client: DynamoDBClient, table: str, group: str, instance: str) -> WorkerRelease | None:
    """Return the release, None if none is set.

    Raises:
        AgentError: DynamoDB returned an error or is unreachable, or the item is invalid.
    """
    description = f"release of {group} in {table}"
    with aws_errors(description):
        response = client.get_item(TableName=table, Key=release.key(group), ConsistentRead=True)
    if "Item" not in response:
        return None
    try:
        return release.parse(response["Item"]).release_for(instance)
    except ValueError as error:
        raise AgentError(f"{description}: {error}") from None
