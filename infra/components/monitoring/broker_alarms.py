"""What wakes a person because of a queue's broker.

Metrics: Amazon MQ guide, "Available CloudWatch metrics for Amazon MQ for RabbitMQ brokers"; those of a broker
have one dimension, its name, and count all of its queues, one of dead letters, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pulumi

from infra.components.monitoring.alarm import AlarmSpec

_NAMESPACE: Final = "AWS/AmazonMQ"
_FULL: Final = 0.8
"""How much of what it may hold a queue holds when somebody should look."""


@dataclass(frozen=True)
class WatchedBroker:
    """A broker of the stack's own: whose queue it has, its name in AWS, how many tasks may wait (0: any)."""

    service: str
    name: pulumi.Input[str]
    most: int


def alarms(broker: WatchedBroker) -> Iterator[AlarmSpec]:
    """Yield the alarms of one broker."""
    of, name = {"Broker": broker.name}, f"{broker.service}-queue"
    yield AlarmSpec(
        f"{name}-down",
        f"The broker of {broker.service} has said nothing for ten minutes.",
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
        f"{name}-unread",
        f"Tasks of {broker.service} have waited for 15 minutes and no worker is connected to its broker.",
        _NAMESPACE,
        "ConsumerCount",
        of,
        "Maximum",
        at_least=1,
        periods=15,
        needed=15,
        below=True,
        other="MessageReadyCount",
        expression="IF(other > 0, value, 1)",
    )
    if broker.most:
        yield AlarmSpec(
            f"{name}-deep",
            f"{_FULL:.0%} of the {broker.most} tasks that may wait for {broker.service} do; when all do, new "
            "ones are refused.",
            _NAMESPACE,
            "MessageReadyCount",
            of,
            "Maximum",
            at_least=max(1, int(_FULL * broker.most)),
            periods=5,
            needed=5,
        )
    yield AlarmSpec(
        f"{name}-memory",
        f"The broker of {broker.service} uses {_FULL:.0%} of the memory that it may; at all of it, it blocks "
        "who sends.",
        _NAMESPACE,
        "RabbitMQMemUsed",
        of,
        "Maximum",
        at_least=int(100 * _FULL),
        periods=5,
        needed=5,
        other="RabbitMQMemLimit",
        expression="100 * value / other",
    )
    yield AlarmSpec(
        f"{name}-disk",
        f"The broker of {broker.service} has less than twice the free disk below which it blocks who sends.",
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
