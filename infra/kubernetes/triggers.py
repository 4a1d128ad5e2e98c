"""By what KEDA counts the requests of a service: a trigger for each kind of queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from contracts.agent import config as agent
from infra.kubernetes.place import Object


def rabbitmq(queue: agent.Queue, most: str, region: str) -> Object:
    """Return the trigger of a queue in RabbitMQ; its length has what is with workers in it."""
    metadata = {"protocol": "amqp", "queueName": queue.name, "mode": "QueueLength", "value": most}
    return {"type": "rabbitmq", "metadata": metadata}


def sqs(queue: agent.Queue, most: str, region: str) -> Object:
    """Return the trigger of a queue in SQS."""
    metadata = {"queueURL": queue.name, "queueLength": most, "awsRegion": region, "scaleOnInFlight": "true"}
    return {"type": "aws-sqs-queue", "metadata": metadata}


TRIGGERS: Final[Mapping[str, Callable[[agent.Queue, str, str], Object]]] = {
    "rabbitmq": rabbitmq,
    "sqs": sqs,
}
"""By ``services[].queue.kind``; each is given the queue, how many may wait for a worker, and the region."""
