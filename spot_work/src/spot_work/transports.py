"""Which transport an address speaks; what it needs is imported only then."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import NamedTuple

from spot_work.pending import Pending
from spot_work.publisher import Post
from spot_work.queue_reader import Source
from spot_work.queues import Queue


class Transport(NamedTuple):
    """Both ends of a queue; each transport is a folder of its own."""

    source: Callable[[str, Queue, int, float], Source]
    post: Callable[[str, Queue, Pending], Post]


def source(url: str, queue: Queue, prefetch: int, give_up_after: float = 900.0) -> Source:
    """Return a worker's end of a queue; the arguments are those of the transport's own source.

    Raises:
        ValueError: the address cannot be read.
        ImportError: what its transport needs is not installed.
    """
    return _transport(url).source(url, queue, prefetch, give_up_after)


def post(url: str, queue: Queue, pending: Pending) -> Post:
    """Return a client's end of a queue; raises what `source` does."""
    return _transport(url).post(url, queue, pending)


def _rabbitmq() -> Transport:
    from spot_work.rabbitmq.post import RabbitPost
    from spot_work.rabbitmq.reader import RabbitSource

    return Transport(RabbitSource, RabbitPost)


def _sqs() -> Transport:
    if importlib.util.find_spec("boto3") is None:
        raise ImportError("SQS is spoken by boto3, which is not here: install spot-work[sqs]")
    from spot_work.sqs.post import SqsPost
    from spot_work.sqs.reader import SqsSource

    return Transport(SqsSource, SqsPost)


_SCHEMES = {"amqp": _rabbitmq, "amqps": _rabbitmq, "sqs": _sqs}


def _transport(url: str) -> Transport:
    scheme, _, _ = url.partition("://")
    if scheme not in _SCHEMES:
        raise ValueError(
            f"{scheme}://, allowed: amqps://user:password@host:port/vhost or sqs://region/account"
        )
    return _SCHEMES[scheme]()
