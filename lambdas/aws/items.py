"""Items of DynamoDB: many read at once; those of the memory table are written with optimistic locking."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from botocore.exceptions import ClientError

from contracts import names
from lambdas.aws.budget import Budget

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class ConflictError(RuntimeError):
    """Another execution of the function has written the item since it was read: observe again."""


INVALID_VERSION: Final = -1
"""The version of an item without a valid one; saving over it always succeeds."""
_BATCH: Final = 100
"""Maximum number of keys of one ``BatchGetItem``."""
_WAITS: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0)
"""Seconds before each further attempt to read the keys that DynamoDB did not read: it throttles the table.

Source: DynamoDB API reference, ``BatchGetItem``: "we strongly recommend that you use an exponential backoff".
"""

KEPT_SECONDS: Final = 30 * 86_400.0
"""Time after which an item expires that no function writes any more: its group has left the stack."""

Item: TypeAlias = Mapping[str, Any]


def expiry(item: Item) -> float:
    """Return when an item expires (epoch seconds); 0.0 if it does not say so."""
    try:
        return float(item[names.TTL]["N"])
    except (ValueError, KeyError, TypeError):
        return 0.0


def is_aging(expires_at: float, now: float) -> bool:
    """Return whether an item has to be written, changed or not, so that it stays."""
    return expires_at < now + KEPT_SECONDS * 2 / 3


def batch_get(
    dynamodb: DynamoDBClient, table: str, keys: Sequence[Item], budget: Budget, *, consistent: bool = False
) -> Iterator[Item]:
    """Yield the items with these keys; missing ones are left out.

    Raises:
        BudgetError: the pass is over.
        ClientError: the table is throttled, as if no key had been read.
    """
    for start in range(0, len(keys), _BATCH):
        pending_keys: Sequence[Item] = keys[start : start + _BATCH]
        for wait in (0.0, *_WAITS):
            time.sleep(wait)
            budget.check(f"items of {table}")
            request: Any = {"Keys": pending_keys, **({"ConsistentRead": True} if consistent else {})}
            response = dynamodb.batch_get_item(RequestItems={table: request})
            yield from response["Responses"].get(table, ())
            unprocessed = response.get("UnprocessedKeys", {})
            pending_keys = unprocessed[table]["Keys"] if table in unprocessed else ()
            if not pending_keys:
                break
        else:
            text = f"{len(pending_keys)} items of {table} were not read"
            code = "ProvisionedThroughputExceededException"
            raise ClientError({"Error": {"Code": code, "Message": text}}, "BatchGetItem")


@dataclass(frozen=True, slots=True)
class VersionedItems:
    """Reads and writes the memory table; ``fetched`` are items by key that `prefetched` has read."""

    dynamodb: DynamoDBClient
    table: str
    fetched: Mapping[str, Item | None] = field(default_factory=dict)

    def prefetched(self, keys: Iterable[str], budget: Budget) -> VersionedItems:
        """Return a reader that has read these items at once."""
        read: dict[str, Item | None] = dict.fromkeys(keys)
        key_items = [{names.MEMORY_KEY: {"S": key}} for key in read]
        for item in batch_get(self.dynamodb, self.table, key_items, budget, consistent=True):
            read[item[names.MEMORY_KEY]["S"]] = item
        return replace(self, fetched=read)

    def load(self, key: str) -> tuple[Item | None, int]:
        """Return an item and its version; None and 0 if it does not exist."""
        item = self.fetched[key] if key in self.fetched else self._get(key)
        if item is None:
            return None, 0
        try:
            return item, int(item["version"]["N"])
        except (ValueError, KeyError, TypeError):
            return item, INVALID_VERSION

    def _get(self, key: str) -> Item | None:
        key_items = {names.MEMORY_KEY: {"S": key}}
        return self.dynamodb.get_item(TableName=self.table, Key=key_items, ConsistentRead=True).get("Item")

    def save(self, key: str, attributes: dict[str, Any], version: int, now: float | None = None) -> int:
        """Store an item, return its version; raise ``ConflictError`` unless ``version`` is the newest.

        With ``now`` it expires `KEPT_SECONDS` later.
        """
        expires = {} if now is None else {names.TTL: {"N": str(round(now + KEPT_SECONDS))}}
        newest = "attribute_not_exists(#k) OR #v = :v"
        unusable = "attribute_not_exists(#v) OR NOT attribute_type(#v, :n)"
        try:
            self.dynamodb.put_item(
                TableName=self.table,
                Item={
                    names.MEMORY_KEY: {"S": key},
                    "version": {"N": str(version + 1)},
                    **attributes,
                    **expires,
                },
                ConditionExpression=f"{newest} OR {unusable}",
                ExpressionAttributeNames={"#k": names.MEMORY_KEY, "#v": "version"},
                ExpressionAttributeValues={":v": {"N": str(version)}, ":n": {"S": "N"}},
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                raise ConflictError(f"memory of group {key!r} is newer than version {version}") from None
            raise
        return version + 1
