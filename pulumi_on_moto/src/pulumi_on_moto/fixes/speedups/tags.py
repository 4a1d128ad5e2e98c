"""The tags of one resource of EC2, for which moto searches the tags of all with a pattern made of its id."""

from __future__ import annotations

from typing import Any, Final

from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.utils import EC2_PREFIX_TO_RESOURCE, get_prefix

from pulumi_on_moto.fixes.fix import Patch


def _tags_of(resource: Any) -> list[dict[str, str]]:
    tags = resource.ec2_backend.tags.get(resource.id)
    if not tags:
        return []
    kind = EC2_PREFIX_TO_RESOURCE.get(get_prefix(resource.id), "")
    return [
        {"resource_id": resource.id, "key": key, "value": value, "resource_type": kind}
        for key, value in tags.items()
    ]


TAGS: Final[Patch] = (TaggedEC2Resource, "get_tags", _tags_of)
