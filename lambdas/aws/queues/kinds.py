"""The queue readers by ``services[].queue.kind``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from lambdas.aws.queues import rabbitmq, sqs
from lambdas.aws.queues.reader import QueueReader

KINDS: Final[Mapping[str, Callable[[Callable[[str], Any]], QueueReader]]] = {
    "rabbitmq": rabbitmq.reader,
    "sqs": sqs.reader,
}
"""Factories; the argument returns the boto3 client of a service by its name."""
