"""Items of the worker registry whose writers the functions do not believe."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any, Final

from contracts import names
from contracts.registry import item as registry_item

_FRESH_SECONDS: Final = 30.0
"""Age of an item below which its writer is active; the agent writes every ten seconds."""
_MAX_PAGES: Final = 20
"""Pages of 1 MB; whoever writes more items is among them."""
_MAX_NAMED: Final = 5


def find(
    dynamodb: Any, table: str, believed: Collection[tuple[str, str]], now: float
) -> Mapping[str, list[str]]:
    """Return the partitions with fresh items that are not ``believed``, by group.

    ``believed`` are the partition and sort key of each item that the functions read. Such a partition is that
    of an instance that its group does not have, of an on-premises host that the stack file does not list, or
    of more slots than a host has.
    """
    pages = dynamodb.get_paginator("scan").paginate(
        TableName=table,
        ProjectionExpression="#p, #s, heartbeat",
        ExpressionAttributeNames={"#p": names.REGISTRY_KEY, "#s": names.REGISTRY_SORT_KEY},
        FilterExpression="heartbeat > :fresh",
        ExpressionAttributeValues={":fresh": {"N": str(int(now - _FRESH_SECONDS))}},
    )
    unknown: dict[str, set[str]] = {}
    for page in islice(pages, _MAX_PAGES):
        for item in page["Items"]:
            partition, slot = (item[key]["S"] for key in (names.REGISTRY_KEY, names.REGISTRY_SORT_KEY))
            if (partition, slot) not in believed:
                unknown.setdefault(registry_item.group_of(partition), set()).add(partition)
    return {group: sorted(partitions) for group, partitions in unknown.items()}


def warning(partitions: Collection[str]) -> str:
    """Return a warning that names the first partitions."""
    named = sorted(partitions)[:_MAX_NAMED]
    more = f" and {len(partitions) - len(named)} more" if len(partitions) > len(named) else ""
    return f"reports not believed, of unknown instances, hosts or slots: {', '.join(named)}{more}"
