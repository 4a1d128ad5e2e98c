"""Items of the memory table, written with optimistic locking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from contracts import names

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class ConflictError(RuntimeError):
    """Another execution of the function has written the item since it was read: observe again."""


INVALID_VERSION: Final = -1
"""The version of an item without a valid one; saving over it always succeeds."""


@dataclass(frozen=True, slots=True)
class VersionedItems:
    """Reads and writes the memory table."""

    dynamodb: DynamoDBClient
    table: str

    def load(self, key: str) -> tuple[dict[str, Any] | None, int]:
        """Return an item and its version; None and 0 if it does not exist."""
        item: dict[str, Any] | None = self.dynamodb.get_item(
            TableName=self.table, Key={names.MEMORY_KEY: {"S": key}}, ConsistentRead=True
        ).get("Item")
        if item is None:
            return None, 0
        try:
            return item, int(item["version"]["N"])
        except (ValueError, KeyError, TypeError):
            return item, INVALID_VERSION

    def save(self, key: str, attributes: dict[str, Any], version: int) -> int:
        """Store an item, return its version; raise ``ConflictError`` unless ``version`` is the newest."""
        newest = "attribute_not_exists(#k) OR #v = :v"
        unusable = "attribute_not_exists(#v) OR NOT attribute_type(#v, :n)"
        try:
            self.dynamodb.put_item(
                TableName=self.table,
                Item={names.MEMORY_KEY: {"S": key}, "version": {"N": str(version + 1)}, **attributes},
                ConditionExpression=f"{newest} OR {unusable}",
                ExpressionAttributeNames={"#k": names.MEMORY_KEY, "#v": "version"},
                ExpressionAttributeValues={":v": {"N": str(version)}, ":n": {"S": "N"}},
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                raise ConflictError(f"memory of group {key!r} is newer than version {version}") from None
            raise
        return version + 1
