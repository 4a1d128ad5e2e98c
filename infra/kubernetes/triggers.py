"""KEDA triggers on a service's queue, by kind of queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from contracts.agent import config as agent
from infra.kubernetes.context import Manifest


def rabbitmq(queue: agent.Queue, messages_per_worker: str, region: str) -> Manifest:
    """Return the trigger of a RabbitMQ queue; its length includes unacknowledged messages."""
    metadata = {
        "protocol": "amqp",
        "queueName": queue.name,
        "mode": "QueueLength",
        "value": messages_per_worker,
    }
    return {"type": "rabbitmq", "metadata": metadata}


def sqs(queue: agent.Queue, messages_per_worker: str, region: str) -> Manifest:
    """Return the trigger of an SQS queue."""
    metadata = {
        "queueURL": queue.name,
        "queueLength": messages_per_worker,
        "awsRegion": region,
        "scaleOnInFlight": "true",
    }
    return {"type": "aws-sqs-queue", "metadata": metadata}


TRIGGERS: Final[Mapping[str, Callable[[agent.Queue, str, str], Manifest]]] = {
    "rabbitmq": rabbitmq,
    "sqs": sqs,
}
"""By ``services[].queue.kind``; called with the queue, the messages per worker, and the region."""
