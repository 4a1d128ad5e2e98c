"""The Lambda service of the local cloud: deployed archives, run in this process.

Each function is unpacked from the archive that was deployed and imported into a module space of its own, so
that it never sees the source tree's modules of the same name, and sees its own environment variables.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from unittest import mock

from botocore.client import BaseClient
from moto.awslambda.models import EventSourceMapping, lambda_backends
from moto.moto_api._internal import mock_random
from moto.sqs.models import sqs_backends

from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.program.archives import unpack
from pulumi_on_moto.sandbox import ACCOUNT

_RECEIVE_LIMIT: Final = 10
"""Messages that one ``ReceiveMessage`` returns at most."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler receives as ``context``; the names are Lambda's."""

    function_name: str
    function_version: str
    invoked_function_arn: str
    memory_limit_in_mb: str
    aws_request_id: str
    log_group_name: str
    log_stream_name: str
    timeout_ms: int

    def get_remaining_time_in_millis(self) -> int:
        """Return the whole timeout: simulated time stands still during an invocation."""
        return self.timeout_ms


@dataclass(frozen=True, slots=True)
class Invocation:
    """One run of a function.

    Attributes:
        function: the function's name.
        messages: how many messages it was given.
        failed: ids of the messages that stay on the queue.
        log: what it wrote, line by line.
        error: the exception that ended it, as one line; empty if none did.
    """

    function: str
    messages: int
    failed: tuple[str, ...]
    log: tuple[str, ...]
    error: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """One AWS call of a function; ``params`` are boto3's arguments."""

    function: str
    service: str
    operation: str
    params: Mapping[str, Any]


class DeployedFunction:
    """One function, loaded from its deployed archive when it is first invoked."""

    def __init__(self, configuration: Any, code: bytes, folder: Path, region: str) -> None:
        self.name: str = configuration.function_name
        self._code = code
        self._folder = folder
        self._handler_path: str = configuration.handler
        self._arn: str = configuration.function_arn
        self._memory = str(configuration.memory_size)
        self._timeout_ms = int(configuration.timeout) * 1000
        variables: Mapping[str, str] = configuration.environment_vars or {}
        self._environment = {
            "AWS_REGION": region,
            "AWS_DEFAULT_REGION": region,
            "AWS_LAMBDA_FUNCTION_NAME": self.name,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": self._memory,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "_HANDLER": self._handler_path,
            **variables,
        }
        self._space: dict[str, ModuleType] = {}
        self._owned: frozenset[str] = frozenset()
        self._handler: Any = None
        self._out = _Log()

    def invoke(self, event: Mapping[str, Any]) -> tuple[Any, tuple[str, ...]]:
        """Call the handler; return its result and the lines that it wrote. What it raises comes out."""
        with self._inside():
            if self._handler is None:
                self._handler = self._load()
            result = self._handler(event, self._context())
        return result, self._out.drain()

    def drain(self) -> tuple[str, ...]:
        """Return the lines written so far: after an exception."""
        return self._out.drain()

    def module(self, name: str) -> ModuleType:
        """Return a module of the function's own space, for inspection."""
        return self._space[name]

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        if not self._owned:
            unpack(self._code, self._folder)
            self._owned = frozenset(entry.name.removesuffix(".py") for entry in self._folder.iterdir())
        outside = {name: module for name, module in sys.modules.items() if self._owns(name)}
        for name in outside:
            del sys.modules[name]
        sys.modules.update(self._space)
        sys.path.insert(0, str(self._folder))
        try:
            with mock.patch.dict(os.environ, self._environment), contextlib.redirect_stdout(self._out):
                yield
        finally:
            sys.path.remove(str(self._folder))
            self._space = {name: module for name, module in sys.modules.items() if self._owns(name)}
            for name in self._space:
                del sys.modules[name]
            sys.modules.update(outside)

    def _owns(self, module: str) -> bool:
        return module.partition(".")[0] in self._owned

    def _load(self) -> Any:
        module_name, _, attribute = self._handler_path.rpartition(".")
        importlib.invalidate_caches()
        module = importlib.import_module(module_name)
        return getattr(module, attribute)

    def _context(self) -> Context:
        return Context(
            function_name=self.name,
            function_version="$LATEST",
            invoked_function_arn=self._arn,
            memory_limit_in_mb=self._memory,
            aws_request_id=str(mock_random.uuid4()),
            log_group_name=f"/aws/lambda/{self.name}",
            log_stream_name="local",
            timeout_ms=self._timeout_ms,
        )


class FunctionRuntime:
    """Polls the queues of the deployed event source mappings and runs the functions behind them."""

    def __init__(self, region: str, code: Mapping[str, bytes], folder: Path | None = None) -> None:
        self._holder = tempfile.TemporaryDirectory(prefix="gpu-spot-functions-") if folder is None else None
        root = folder if folder is not None else Path(self._holder.name if self._holder else "")
        self._lambda = lambda_backends[ACCOUNT][region]
        self._queues = sqs_backends[ACCOUNT][region]
        self._region = region
        self.functions: dict[str, DeployedFunction] = {}
        self.listener: Callable[[Call], None] | None = None
        for name, archive in code.items():
            configuration = self._lambda.get_function(name)
            self.functions[name] = DeployedFunction(configuration, archive, root / name, region)

    def close(self) -> None:
        """Remove the unpacked archives."""
        if self._holder is not None:
            self._holder.cleanup()

    def run(self) -> list[Invocation]:
        """Feed every function the messages that are visible now, batch by batch, until none is left."""
        done: list[Invocation] = []
        for mapping in self._lambda.list_event_source_mappings("", ""):
            if mapping.enabled and ":sqs:" in mapping.event_source_arn:
                done.extend(self._drain(mapping))
        return done

    def _drain(self, mapping: EventSourceMapping) -> Iterator[Invocation]:
        queue = self._queues.get_queue(mapping.event_source_arn.rpartition(":")[2])
        name = mapping.function_arn.split(":")[6]
        function = self.functions.get(name)
        if function is None:
            raise LocalCloudError(f"function {name!r} has an event source, but no deployed archive")
        while batch := self._receive(queue, mapping.batch_size):
            yield self._invoke(function, mapping, queue, batch)

    def _receive(self, queue: Any, size: int) -> list[Any]:
        # SQS drops what is older than the retention; moto stops receiving at it.
        for message in queue.messages:
            if not self._queues.is_message_valid_based_on_retention_period(queue.name, message):
                queue._messages.remove(message)
        batch: list[Any] = []
        while len(batch) < size:
            if not queue.messages:
                break
            count = min(size - len(batch), _RECEIVE_LIMIT)
            received = self._queues.receive_message(queue.name, count, 0, int(queue.visibility_timeout))
            if not received:
                break
            batch.extend(received)
        return batch

    def _invoke(
        self, function: DeployedFunction, mapping: EventSourceMapping, queue: Any, batch: list[Any]
    ) -> Invocation:
        event = {"Records": [_record(message, mapping.event_source_arn, self._region) for message in batch]}
        error = ""
        ids = [message.id for message in batch]
        try:
            with self._overheard(function.name):
                result, log = function.invoke(event)
            failed = _failures(result, ids) if "ReportBatchItemFailures" in _response_types(mapping) else ()
        except Exception as raised:  # what a handler raises fails its batch, as on Lambda; the caller is told
            error = f"{type(raised).__name__}: {' '.join(str(raised).split())}"
            log, failed = function.drain(), tuple(ids)
        for message in batch:
            if message.id not in failed:
                self._queues.delete_message(queue.name, message.receipt_handle)
        return Invocation(function.name, len(batch), failed, log, error)

    @contextlib.contextmanager
    def _overheard(self, function: str) -> Iterator[None]:
        listener, send = self.listener, BaseClient._make_api_call  # type: ignore[attr-defined]
        if listener is None:
            yield
            return

        def heard(client: BaseClient, operation: str, params: Mapping[str, Any]) -> Any:
            with mock.patch.object(BaseClient, "_make_api_call", send):  # the listener may ask AWS itself
                listener(Call(function, client.meta.service_model.service_name, operation, params))
            return send(client, operation, params)

        with mock.patch.object(BaseClient, "_make_api_call", heard):
            yield


class _Log(io.TextIOBase):
    """Collects what a function prints; a logger may keep it across invocations."""

    def __init__(self) -> None:
        self._text: list[str] = []

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._text.append(text)
        return len(text)

    def drain(self) -> tuple[str, ...]:
        lines = tuple("".join(self._text).splitlines())
        self._text.clear()
        return lines


def _response_types(mapping: EventSourceMapping) -> list[str]:
    return mapping.function_response_types or []


def _failures(result: Any, ids: list[str]) -> tuple[str, ...]:
    """Return the ids that a batch response reports; a malformed answer fails the whole batch."""
    if result is None or result == {}:
        return ()
    failures = result.get("batchItemFailures") if isinstance(result, dict) else result
    if failures is None:
        return ()
    if not isinstance(failures, list):
        return tuple(ids)
    reported = [item.get("itemIdentifier") if isinstance(item, dict) else None for item in failures]
    if any(identifier not in ids for identifier in reported):
        return tuple(ids)
    return tuple(str(identifier) for identifier in reported)


def _record(message: Any, queue_arn: str, region: str) -> dict[str, Any]:
    """Return a message as Lambda's SQS event carries it (Lambda developer guide, "Using Lambda with SQS")."""
    body = message.body
    return {
        "messageId": message.id,
        "receiptHandle": message.receipt_handle,
        "body": body,
        "attributes": {
            "ApproximateReceiveCount": str(message.approximate_receive_count),
            "SentTimestamp": str(message.sent_timestamp),
            "SenderId": str(message.sender_id),
            "ApproximateFirstReceiveTimestamp": str(message.approximate_first_receive_timestamp),
        },
        "messageAttributes": {},
        "md5OfBody": hashlib.md5(body.encode(), usedforsecurity=False).hexdigest(),
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": region,
    }
