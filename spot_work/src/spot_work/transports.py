"""Which transport an address speaks; what it needs is imported only then."""

from __future__ import annotations

import importlib.util

from spot_work.pending import Pending
from spot_work.publisher import Post
from spot_work.queues import Queue
from spot_work.source import Source


def source(url: str, queue: Queue, prefetch: int, give_up_after: float = 900.0) -> Source:
    """Return a worker's end of a queue; the arguments are those of the transport's own source.

    Raises:
        ValueError: the address cannot be read.
        ImportError: what its transport needs is not installed.
    """
    if _is_sqs(url):
        _needs_boto3()
        from spot_work.sqs.source import SqsSource

        return SqsSource(url, queue, prefetch, give_up_after)
    from spot_work.rabbitmq.source import RabbitSource

    return RabbitSource(url, queue, prefetch, give_up_after)


def post(url: str, queue: Queue, pending: Pending) -> Post:
    """Return a client's end of a queue; raises what `source` does."""
    if _is_sqs(url):
        _needs_boto3()
        from spot_work.sqs.post import SqsPost

        return SqsPost(url, queue, pending)
    from spot_work.rabbitmq.post import RabbitPost

    return RabbitPost(url, queue, pending)


def _is_sqs(url: str) -> bool:
    scheme, _, _ = url.partition("://")
    if scheme not in ("amqp", "amqps", "sqs"):
        raise ValueError(
            f"{scheme}://, allowed: amqps://user:password@host:port/vhost or sqs://region/account"
        )
    return scheme == "sqs"


def _needs_boto3() -> None:
    if importlib.util.find_spec("boto3") is None:
        raise ImportError("SQS is spoken by boto3, which is not here: install spot-work[sqs]")
