"""Lookup of one EC2 resource's tags without a pattern against the tags of all resources.

moto has two thousand tags of its own, with its snapshots, and a filter looks the tags of each resource up.
"""

from __future__ import annotations

from typing import Any, Final

from moto.ec2.models.tags import TagBackend
from moto.ec2.utils import EC2_PREFIX_TO_RESOURCE, get_prefix

from pulumi_on_moto.fixes.fix import Patch

_WILDCARDS: Final = frozenset("*?[")
_described = TagBackend.describe_tags


def _tags(backend: Any, filters: dict[str, list[str]] | None = None) -> list[dict[str, str]]:
    if filters is None or list(filters) != ["resource-id"] or len(filters["resource-id"]) != 1:
        return _described(backend, filters)
    [resource] = filters["resource-id"]
    if not _WILDCARDS.isdisjoint(resource):
        return _described(backend, filters)
    of_resource = backend.tags.get(resource, {})
    if not of_resource:
        return []
    kind = EC2_PREFIX_TO_RESOURCE.get(get_prefix(resource), "")
    return [
        {"resource_id": resource, "key": key, "value": value, "resource_type": kind}
        for key, value in of_resource.items()
    ]


TAGS: Final[Patch] = (TagBackend, "describe_tags", _tags)
