"""The Lambda service of the local cloud: runs deployed functions on calls, events and messages."""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

from botocore.client import BaseClient
from moto.awslambda.models import EventSourceMapping, lambda_backends
from moto.sqs.models import sqs_backends

from pulumi_on_moto.emulator import ACCOUNT, AwsClients
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.fixes.functions import run_by
from pulumi_on_moto.running.function import DeployedFunction

_RECEIVE_LIMIT: Final = 10
"""Maximum number of messages of a ``ReceiveMessage``."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """A run of a function.

    Attributes:
        function: the function's name in AWS.
        messages: number of queue messages that it received.
        failed: ids of the messages that remain on the queue.
        log: its output, by line.
        error: the exception that ended it, as one line; empty without one.
        result: the handler's result.
    """

    function: str
    messages: int
    failed: tuple[str, ...]
    log: tuple[str, ...]
    error: str = ""
    result: Any = None


@dataclass(frozen=True, slots=True)
class Call:
    """An AWS call of a function; ``params`` are boto3's arguments."""

    function: str
    service: str
    operation: str
    params: Mapping[str, Any]


class FunctionRuntime:
    """The deployed functions, and their pending events and messages.

    Attributes:
        functions: by name in AWS.
        listener: receives every AWS call of a function before it is sent; the call raises the listener's
        exceptions.
    """

    def __init__(self, clients: AwsClients, code: Mapping[str, bytes]) -> None:
        self._lambda = lambda_backends[ACCOUNT][clients.region]
        self._queues = sqs_backends[ACCOUNT][clients.region]
        self._region = clients.region
        self._waiting: list[tuple[str, Any]] = []
        self._deferred: list[Invocation] = []
        self.functions: dict[str, DeployedFunction] = {}
        self.listener: Callable[[Call], None] | None = None
        folder = tempfile.TemporaryDirectory(prefix="pulumi-on-moto-")
        root = Path(clients.closing.enter_context(folder))
        for name, archive in code.items():
            configuration = self._lambda.get_function(name)
            self.functions[name] = DeployedFunction(configuration, archive, root / name, clients.region)
        run_by(self._lambda, self._respond)

    def cool(self) -> None:
        """Discard loaded modules and pending events: the next runs are cold starts."""
        self._waiting.clear()
        for function in self.functions.values():
            function.cool()

    def invoke(self, name: str, payload: Any = None) -> Invocation:
        """Run a function on a payload; payload and result are serialized as JSON."""
        event, function = json.loads(json.dumps(payload)), self._function(name, "is not deployed")
        error, result = self._called(function, event)
        if not error:
            try:
                result = json.loads(json.dumps(result))
            except (TypeError, ValueError) as problem:
                error, result = f"Runtime.MarshalError: Unable to marshal response: {problem}", None
        return Invocation(name, 0, (), function.drain(), error, result)

    def enqueue(self, name: str, event: Any) -> None:
        """Queue an event for a function, as Lambda's asynchronous invocation does."""
        self._waiting.append((name, event))

    def run(self) -> list[Invocation]:
        """Run every function on its pending events and visible messages, batch by batch.

        It returns when none is left. Functions that are invoked meanwhile come last.
        """
        self._deferred.clear()
        done: list[Invocation] = []
        while ran := [*self._run_events(), *self._run_messages()]:
            done += ran
        return done + self._deferred

    def _respond(self, name: str, event: Any) -> tuple[str, bool, str]:
        """Run a function for a caller inside the sandbox."""
        run = self.invoke(name, event)
        self._deferred.append(run)
        kind, _, text = run.error.partition(": ")
        payload = {"errorType": kind, "errorMessage": text} if run.error else run.result
        return json.dumps(payload), bool(run.error), "\n".join(run.log)

    def _run_events(self) -> Iterator[Invocation]:
        while self._waiting:
            yield self.invoke(*self._waiting.pop(0))

    def _run_messages(self) -> Iterator[Invocation]:
        for mapping in self._lambda.list_event_source_mappings("", ""):
            if mapping.enabled and ":sqs:" in mapping.event_source_arn:
                yield from self._drain(mapping)

    def _function(self, name: str, problem: str) -> DeployedFunction:
        function = self.functions.get(name)
        if function is None:
            raise LocalCloudError(
                f"function {name!r} {problem}; deployed: {', '.join(self.functions) or 'none'}"
            )
        return function

    def _drain(self, mapping: EventSourceMapping) -> Iterator[Invocation]:
        queue = self._queues.get_queue(mapping.event_source_arn.rpartition(":")[2])
        name = mapping.function_arn.split(":")[6]
        function = self._function(name, "has an event source, but no deployed archive")
        while batch := self._receive(queue, mapping.batch_size):
            yield self._feed(function, mapping, queue, batch)

    def _receive(self, queue: Any, size: int) -> list[Any]:
        # SQS drops messages older than the retention; moto stops receiving at one.
        for message in queue.messages:
            if not self._queues.is_message_valid_based_on_retention_period(queue.name, message):
                queue._messages.remove(message)
        batch: list[Any] = []
        while len(batch) < size and queue.messages:
            count = min(size - len(batch), _RECEIVE_LIMIT)
            received = self._queues.receive_message(queue.name, count, 0, int(queue.visibility_timeout))
            if not received:
                break
            batch.extend(received)
        return batch

    def _feed(
        self, function: DeployedFunction, mapping: EventSourceMapping, queue: Any, batch: list[Any]
    ) -> Invocation:
        records = [_record(message, mapping.event_source_arn, self._region) for message in batch]
        ids = [message.id for message in batch]
        error, result = self._called(function, {"Records": records})
        failed = tuple(ids) if error else ()
        if not error and "ReportBatchItemFailures" in (mapping.function_response_types or []):
            failed = _failures(result, ids)
        for message in batch:
            if message.id not in failed:
                self._queues.delete_message(queue.name, message.receipt_handle)
        return Invocation(function.name, len(batch), failed, function.drain(), error, result)

    def _called(self, function: DeployedFunction, event: Any) -> tuple[str, Any]:
        """Return the error of a call as one line, empty without one, and its result."""
        try:
            with self._overheard(function.name):
                return "", function.call(event)
        except Exception as raised:  # fails the event, as on Lambda; the caller gets the error
            return f"{type(raised).__name__}: {' '.join(str(raised).split())}", None

    @contextlib.contextmanager
    def _overheard(self, function: str) -> Iterator[None]:
        listener, send = self.listener, BaseClient._make_api_call  # type: ignore[attr-defined]
        if listener is None:
            yield
            return

        def intercept(client: BaseClient, operation: str, params: Mapping[str, Any]) -> Any:
            with mock.patch.object(BaseClient, "_make_api_call", send):  # the listener may call AWS itself
                listener(Call(function, client.meta.service_model.service_name, operation, params))
            return send(client, operation, params)

        with mock.patch.object(BaseClient, "_make_api_call", intercept):
            yield


def _failures(result: Any, ids: list[str]) -> tuple[str, ...]:
    """Return the failed ids of a batch response; a malformed response fails the whole batch."""
    failures = result.get("batchItemFailures") if isinstance(result, dict) else result
    if failures is None:
        return ()
    if not isinstance(failures, list) or not all(isinstance(item, dict) for item in failures):
        return tuple(ids)
    reported = tuple(item.get("itemIdentifier") for item in failures)
    return reported if all(identifier in ids for identifier in reported) else tuple(ids)


def _record(message: Any, queue_arn: str, region: str) -> dict[str, Any]:
    """Return a message as in Lambda's SQS event (Lambda developer guide, "Using Lambda with SQS")."""
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
