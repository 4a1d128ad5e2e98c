"""The kinds of queue that are watched, by ``services[].queue.kind``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from lambdas.aws.queues import rabbitmq, sqs
from lambdas.aws.queues.reader import Reader

KINDS: Final[Mapping[str, Callable[[Callable[[str], Any]], Reader]]] = {
    "rabbitmq": rabbitmq.reader,
    "sqs": sqs.reader,
}
"""Each is given what returns the boto3 client of a service by its name."""
