"""Alarms of a RabbitMQ broker.

Source: Amazon MQ guide, "Available CloudWatch metrics for Amazon MQ for RabbitMQ brokers". A broker's metrics
have one dimension, its name, and cover all of its queues, including reply and dead-letter queues. Alarms of
the queue that workers consume are in ``monitoring/queue_alarms.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pulumi

from infra.components.monitoring.alarm_spec import UNKNOWN, AlarmSpec, Condition, MetricSource
from infra.components.monitoring.queue_alarms import NEARLY_FULL


def broker_alarms(service: str, broker: pulumi.Input[str]) -> Iterator[AlarmSpec]:
    """Yield the alarms of the broker named ``broker``, which hosts the queue of ``service``."""
    metrics, name = MetricSource("AWS/AmazonMQ", {"Broker": broker}), f"{service}-queue"
    yield AlarmSpec(
        f"{name}-down",
        f"The broker of {service} has sent no metrics for ten minutes.",
        metrics,
        "ConnectionCount",
        # A count is never below 0: only missing data breaches.
        replace(UNKNOWN, threshold=0, below=True),
    )
    yield AlarmSpec(
        f"{name}-memory",
        f"The broker of {service} uses {NEARLY_FULL:.0%} of its memory limit; at the limit it blocks "
        "publishers.",
        metrics,
        "RabbitMQMemUsed",
        Condition("Maximum", int(100 * NEARLY_FULL), periods=5, datapoints=5),
        second_metric="RabbitMQMemLimit",
        expression="100 * value / other",
    )
    yield AlarmSpec(
        f"{name}-disk",
        f"The broker of {service} has less than twice the free disk space below which it blocks publishers.",
        metrics,
        "RabbitMQDiskFree",
        Condition("Minimum", 200, periods=5, datapoints=5, below=True),
        second_metric="RabbitMQDiskFreeLimit",
        expression="100 * value / other",
    )
