"""Keep a group's memory in one DynamoDB item, written only by whoever read its newest version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from lambdas.core import memory as codec
from lambdas.core import names
from lambdas.core.memory import Memory

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class ConflictError(RuntimeError):
    """Another copy of the controller has decided about the group meanwhile: look again."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """A memory as stored; ``version`` 0: nothing was. ``unreadable`` says why what was stored is lost.

    An item whose version is no number has ``version`` -1, and whoever saves over that takes any.
    """

    memory: Memory
    version: int = 0
    wake_at: float | None = None
    unreadable: str | None = None


_NO_NUMBER: Final = -1


@dataclass(frozen=True, slots=True)
class MemoryStore:
    """Reads and writes the memory table."""

    dynamodb: DynamoDBClient
    table: str

    def load(self, group: str) -> Remembered:
        """Return the group's memory; an empty one where there is none or it cannot be read."""
        item = self.dynamodb.get_item(
            TableName=self.table, Key={names.MEMORY_KEY: {"S": group}}, ConsistentRead=True
        ).get("Item")
        if item is None:
            return Remembered(Memory())
        version = _NO_NUMBER
        try:
            version = int(item["version"]["N"])
            wake_at = float(item["wakeAt"]["N"]) if "wakeAt" in item else None
            return Remembered(codec.parse(item["memory"]["S"]), version, wake_at)
        except (ValueError, KeyError, TypeError) as error:
            return Remembered(Memory(), version, unreadable=str(error))

    def save(self, group: str, memory: Memory, wake_at: float | None, version: int) -> int:
        """Store the memory over ``version`` and return its own; raise ``ConflictError`` if it is old.

        ``wake_at`` stands beside it for people and tools: when this group's next look may matter.
        """
        item: dict[str, Any] = {
            names.MEMORY_KEY: {"S": group},
            "version": {"N": str(version + 1)},
            "memory": {"S": codec.dump(memory)},
        }
        if wake_at is not None:
            item["wakeAt"] = {"N": str(wake_at)}
        newest = "attribute_not_exists(#k) OR #v = :v"
        unusable = "attribute_not_exists(#v) OR NOT attribute_type(#v, :n)"
        try:
            self.dynamodb.put_item(
                TableName=self.table,
                Item=item,
                ConditionExpression=f"{newest} OR {unusable}",
                ExpressionAttributeNames={"#k": names.MEMORY_KEY, "#v": "version"},
                ExpressionAttributeValues={":v": {"N": str(version)}, ":n": {"S": "N"}},
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                raise ConflictError(f"memory of group {group!r} is newer than version {version}") from None
            raise
        return version + 1
