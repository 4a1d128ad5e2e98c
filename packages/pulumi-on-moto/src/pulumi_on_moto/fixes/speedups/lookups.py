"""Lookups of moto that read what is asked for and no more.

The account of an access key without an IAM backend with all managed policies for each partition; whether a
class has a method without a list of all; a message's age without all attributes of its queue; one resource's
tags without a pattern against those of all: moto has two thousand of its own, with its snapshots.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from moto.core import responses
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.core.utils import unix_time
from moto.ec2.models.tags import TagBackend
from moto.iam import models
from moto.sqs.models import SQSBackend

from pulumi_on_moto.fixes import Patch, around


def _account_of(access_key: str) -> str:
    for account_id, partitions in list(models.iam_backends.items()):
        if any(access_key in backend.access_keys for backend in list(partitions.values())):
            return account_id
    return DEFAULT_ACCOUNT_ID


ACCOUNT: Final[Patch] = (models, "get_account_id_from", _account_of)


@dataclass(frozen=True, slots=True)
class _Methods:
    """Replacement of the list of methods; not kept, because another sandbox has other ones."""

    of: type

    def __contains__(self, name: str) -> bool:
        return inspect.isfunction(getattr(self.of, name, None))


METHODS: Final[Patch] = (responses, "method_names_from_class", _Methods)


def _is_valid(backend: Any, queue_name: str, message: Any) -> bool:
    retention = backend.get_queue(queue_name).message_retention_period
    return bool(retention + message.sent_timestamp / 1000 > unix_time())


RETENTION: Final[Patch] = (SQSBackend, "is_message_valid_based_on_retention_period", _is_valid)


_WILDCARDS: Final = frozenset("*?[")


def _tags(describe: Callable[..., Any], backend: Any, filters: dict[str, list[str]] | None = None) -> Any:
    resources = filters.get("resource-id", ()) if filters is not None and len(filters) == 1 else ()
    if len(resources) != 1 or not _WILDCARDS.isdisjoint(resources[0]):
        return describe(backend, filters)
    return describe(SimpleNamespace(tags={resources[0]: backend.tags.get(resources[0], {})}))


TAGS: Final = around(TagBackend, "describe_tags", _tags)
