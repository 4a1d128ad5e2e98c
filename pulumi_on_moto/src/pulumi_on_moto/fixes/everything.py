"""Everything in moto that is put right or made faster while a sandbox is open."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final
from unittest import mock

from botocore import parsers
from moto.awslambda.models import LambdaBackend
from moto.core import serialize
from moto.core.utils import get_value, unix_time
from moto.iam.access_control import PermissionResult
from moto.s3.models import FakeBucket
from moto.sqs.models import Message, SQSBackend, sqs_backends

from pulumi_on_moto.fixes import fleets as moto_fleets
from pulumi_on_moto.fixes import groups as moto_groups

_PLAIN_TEXT: Final = {"Bool": {"aws:SecureTransport": "false"}}


@contextlib.contextmanager
def applied() -> Iterator[None]:
    """Patch moto while the body runs."""
    with (
        moto_groups.applied(),
        moto_fleets.applied(),
        mock.patch.object(
            LambdaBackend,
            "create_event_source_mapping",
            _without_polling(LambdaBackend.create_event_source_mapping),
        ),
        mock.patch.object(FakeBucket, "get_permission", _regarding_tls(FakeBucket.get_permission)),
        mock.patch.object(SQSBackend, "is_message_valid_based_on_retention_period", _is_kept),
        mock.patch.object(serialize.AttributePicker, "__call__", _picking()),
        mock.patch.object(
            parsers, "DEFAULT_TIMESTAMP_PARSER", lru_cache(4096)(parsers.DEFAULT_TIMESTAMP_PARSER)
        ),
    ):
        yield


def _without_polling(create: Callable[..., Any]) -> Callable[..., Any]:
    # moto would run a function in Docker as soon as a message arrives; the local cloud polls by itself.
    def created(backend: LambdaBackend, spec: dict[str, Any]) -> Any:
        mapping = create(backend, spec)
        for queue in sqs_backends[backend.account_id][backend.region_name].queues.values():
            queue.lambda_event_source_mappings.clear()
        return mapping

    return created


def _is_kept(backend: SQSBackend, queue_name: str, message: Message) -> bool:
    # moto works out every attribute of the queue, its counts of messages among them, to read this one.
    queue: Any = backend.get_queue(queue_name)
    sent: Any = message.sent_timestamp
    return bool(queue.message_retention_period + sent / 1000 > unix_time())


def _regarding_tls(permission: Callable[..., Any]) -> Callable[..., Any]:
    # moto reads no conditions: a bucket that refuses plain text would refuse everybody. Every call here
    # counts as encrypted.
    def regarded(bucket: FakeBucket, action: str, resource: str) -> Any:
        if bucket.policy is None:
            return PermissionResult.NEUTRAL
        whole = bucket.policy
        policy = json.loads(whole)
        policy["Statement"] = [s for s in policy["Statement"] if s.get("Condition") != _PLAIN_TEXT]
        bucket.policy = json.dumps(policy).encode()
        try:
            return permission(bucket, action, resource)
        finally:
            bucket.policy = whole

    return regarded


def _picking() -> Callable[..., Any]:
    """Return moto's search for an attribute's value, with what it works out anew each time remembered.

    The spellings of an attribute depend on the service, the object's class, the key and the shape; whether
    one of the transformers applies depends on the key. Both together are most of the time of an answer.
    """
    spellings: dict[Any, tuple[str, ...]] = {}
    absent = object()
    transformers: dict[Any, list[tuple[str, Any]]] = {}

    def pick(picker: Any, context: Any) -> Any:
        shape = context.shape
        place = (
            context.service_model.service_name if context.service_model is not None else None,
            type(context.obj),
            context.key,
            shape.name if shape is not None else None,
            shape.serialization.get("name") if shape is not None else None,
            getattr(getattr(shape, "parent", None), "name", None),
            type(picker),
            tuple(picker.alias_providers),
        )
        keys = spellings.get(place)
        if keys is None:
            keys = spellings[place] = tuple(dict.fromkeys(picker.get_possible_keys(context)))
        value = None
        for key in keys:
            found = get_value(context.obj, key, absent)
            if found is not absent:
                value = found
                break
        # The dictionary itself is kept with its transformers, so that its id stays its own.
        known = transformers.setdefault((id(picker.response_transformers), context.key), [])
        if not known:
            known.append(("", picker.response_transformers))
            known.extend(_that_can_end_in(picker.response_transformers, context.key))
        for path, transform in known[1:]:
            if f"{context.key_path}.{context.key}".endswith(path):
                return transform(value)
        return value

    return pick


def _that_can_end_in(transformers: dict[str, Any], key: str) -> list[tuple[str, Any]]:
    return [
        (path, transform)
        for path, transform in transformers.items()
        if path.rpartition(".")[2] == key or ("." not in path and key.endswith(path))
    ]
