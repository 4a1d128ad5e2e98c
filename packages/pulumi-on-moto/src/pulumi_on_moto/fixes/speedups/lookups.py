"""Lookups of moto that read what is asked for and no more.

The account of an access key without an IAM backend with all managed policies for each partition; whether a
class has a method without a list of all; a message's age without all attributes of its queue; one resource's
tags without a pattern against those of all: moto has two thousand of its own, with its snapshots.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Final

from moto.core import responses
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.core.utils import unix_time
from moto.ec2.models.tags import TagBackend
from moto.ec2.utils import EC2_PREFIX_TO_RESOURCE, get_prefix
from moto.iam import models
from moto.sqs.models import SQSBackend

from pulumi_on_moto.fixes import Patch


def _account_of(access_key: str) -> str:
    for account_id, partitions in list(models.iam_backends.items()):
        if any(access_key in backend.access_keys for backend in list(partitions.values())):
            return account_id
    return DEFAULT_ACCOUNT_ID


ACCOUNT: Final[Patch] = (models, "get_account_id_from", _account_of)


@dataclass(frozen=True, slots=True)
class _Methods:
    """Replacement of the list of methods; ``in`` checks a single name."""

    of: type

    def __contains__(self, name: str) -> bool:
        return inspect.isfunction(getattr(self.of, name, None))


METHODS: Final[Patch] = (responses, "method_names_from_class", _Methods)


def _is_valid(backend: Any, queue_name: str, message: Any) -> bool:
    retention = backend.get_queue(queue_name).message_retention_period
    return bool(retention + message.sent_timestamp / 1000 > unix_time())


RETENTION: Final[Patch] = (SQSBackend, "is_message_valid_based_on_retention_period", _is_valid)


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
