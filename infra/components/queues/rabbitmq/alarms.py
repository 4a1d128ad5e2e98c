"""What wakes a person because of a queue's broker.

Metrics: Amazon MQ guide, "Available CloudWatch metrics for Amazon MQ for RabbitMQ brokers"; those of a broker
have one dimension, its name, and count all of its queues, also those of answers and dead letters: of the one
that workers read tells the queue watcher (``queue_alarms.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pulumi

from infra.components.monitoring.alarm_spec import AlarmSpec
from infra.components.monitoring.queue_alarms import FULL

_NAMESPACE: Final = "AWS/AmazonMQ"


def of_broker(service: str, broker: pulumi.Input[str]) -> Iterator[AlarmSpec]:
    """Yield the alarms of the broker of that name, which has the queue of ``service``."""
    of, name = {"Broker": broker}, f"{service}-queue"
    yield AlarmSpec(
        f"{name}-down",
        f"The broker of {service} has said nothing for ten minutes.",
        _NAMESPACE,
        "ConnectionCount",
        of,
        "Minimum",
        at_least=0,  # no number is below: only silence rings
        periods=10,
        needed=10,
        silence="breaching",
        below=True,
    )
    yield AlarmSpec(
        f"{name}-memory",
        f"The broker of {service} uses {FULL:.0%} of the memory that it may; at all of it, it blocks "
        "who sends.",
        _NAMESPACE,
        "RabbitMQMemUsed",
        of,
        "Maximum",
        at_least=int(100 * FULL),
        periods=5,
        needed=5,
        other="RabbitMQMemLimit",
        expression="100 * value / other",
    )
    yield AlarmSpec(
        f"{name}-disk",
        f"The broker of {service} has less than twice the free disk below which it blocks who sends.",
        _NAMESPACE,
        "RabbitMQDiskFree",
        of,
        "Minimum",
        at_least=200,
        periods=5,
        needed=5,
        below=True,
        other="RabbitMQDiskFreeLimit",
        expression="100 * value / other",
    )
