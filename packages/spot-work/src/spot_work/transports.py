"""Selects the transport by the scheme of the URL; its dependencies are imported only then."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from spot_work.command.inspector import QueueInspector
from spot_work.queue.consumer import RequestConsumer
from spot_work.queue.publisher import RequestPublisher
from spot_work.queue.settings import Queue
from spot_work.queue.url_source import BrokerUrl, UrlSource
from spot_work.request.pending import PendingRequests
from spot_work.watchdog.supervisor import Watchdog

URLS: Final = "amqps://user:password@host:port/vhost or sqs://region/account"
"""The forms of a URL."""


class Transport(NamedTuple):
    """The consumer, publisher, inspector and relay of a transport, which is a separate package."""

    consumer: Callable[..., RequestConsumer]
    publisher: Callable[[UrlSource, Queue, PendingRequests], RequestPublisher]
    inspector: Callable[[str, Queue], QueueInspector]
    relay: str


def consumer(
    url: BrokerUrl,
    queue: Queue,
    prefetch: int,
    max_outage_seconds: float = 900.0,
    watchdog: Watchdog | None = None,
) -> RequestConsumer:
    """Return the consumer of a queue; its arguments are those of the transport's own class.

    Raises:
        ValueError: the URL cannot be parsed.
        ImportError: a dependency of the transport is not installed.
        Exception: what a function that returns the URL raises.
    """
    source = UrlSource(url)
    transport = _transport(source.url)
    relay = None if watchdog is None else partial(watchdog.relay, transport.relay)
    return transport.consumer(source, queue, prefetch, max_outage_seconds, relay=relay)


def publisher(url: BrokerUrl, queue: Queue, pending: PendingRequests) -> RequestPublisher:
    """Return the publisher of a queue; raises as `consumer` does."""
    source = UrlSource(url)
    return _transport(source.url).publisher(source, queue, pending)


def inspector(url: str, queue_name: str) -> QueueInspector:
    """Return the inspector of a queue; raises as `consumer` does."""
    return _transport(url).inspector(url, Queue(queue_name))


def _rabbitmq() -> Transport:
    from spot_work.rabbitmq.consumer import RabbitMQConsumer
    from spot_work.rabbitmq.inspector import RabbitMQInspector
    from spot_work.rabbitmq.publisher import RabbitMQPublisher

    return Transport(RabbitMQConsumer, RabbitMQPublisher, RabbitMQInspector, "spot_work.rabbitmq.relay")


def _sqs() -> Transport:
    if importlib.util.find_spec("boto3") is None:
        raise ImportError("SQS needs boto3, which is not installed: pip install spot-work[sqs]")
    from spot_work.sqs.consumer import SqsConsumer
    from spot_work.sqs.inspector import SqsInspector
    from spot_work.sqs.publisher import SqsPublisher

    return Transport(SqsConsumer, SqsPublisher, SqsInspector, "spot_work.sqs.relay")


_SCHEMES = {"amqp": _rabbitmq, "amqps": _rabbitmq, "sqs": _sqs}


def _transport(url: str) -> Transport:
    scheme, _, _ = url.partition("://")
    if scheme not in _SCHEMES:
        raise ValueError(f"the URL must be {URLS}, not {scheme}://…")
    return _SCHEMES[scheme]()
