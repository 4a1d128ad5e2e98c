"""Selects the transport by the scheme of the URL; its dependencies are imported only then."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import NamedTuple

from spot_work.consumer import RequestConsumer
from spot_work.pending import PendingRequests
from spot_work.publisher import RequestPublisher
from spot_work.queues import Queue


class Transport(NamedTuple):
    """The consumer and the publisher of a transport, which is a separate package."""

    consumer: Callable[[str, Queue, int, float], RequestConsumer]
    publisher: Callable[[str, Queue, PendingRequests], RequestPublisher]


def consumer(url: str, queue: Queue, prefetch: int, max_outage_seconds: float = 900.0) -> RequestConsumer:
    """Return the consumer of a queue; its arguments are those of the transport's own class.

    Raises:
        ValueError: the URL cannot be parsed.
        ImportError: a dependency of the transport is not installed.
    """
    return _transport(url).consumer(url, queue, prefetch, max_outage_seconds)


def publisher(url: str, queue: Queue, pending: PendingRequests) -> RequestPublisher:
    """Return the publisher of a queue; raises as `consumer` does."""
    return _transport(url).publisher(url, queue, pending)


def _rabbitmq() -> Transport:
    from spot_work.rabbitmq.consumer import RabbitMQConsumer
    from spot_work.rabbitmq.publisher import RabbitMQPublisher

    return Transport(RabbitMQConsumer, RabbitMQPublisher)


def _sqs() -> Transport:
    if importlib.util.find_spec("boto3") is None:
        raise ImportError("SQS needs boto3, which is not installed: pip install spot-work[sqs]")
    from spot_work.sqs.consumer import SqsConsumer
    from spot_work.sqs.publisher import SqsPublisher

    return Transport(SqsConsumer, SqsPublisher)


_SCHEMES = {"amqp": _rabbitmq, "amqps": _rabbitmq, "sqs": _sqs}


def _transport(url: str) -> Transport:
    scheme, _, _ = url.partition("://")
    if scheme not in _SCHEMES:
        raise ValueError(
            f"{scheme}://, allowed: amqps://user:password@host:port/vhost or sqs://region/account"
        )
    return _SCHEMES[scheme]()
