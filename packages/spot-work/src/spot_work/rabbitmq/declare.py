"""The declarations of queues and exchanges, identical for workers and clients.

Whichever connects first creates a queue; the broker refuses a declaration that differs. Users without the
permission to declare it have a URL that ends in ``#declared``: for them it must exist.

Requests and replies have exchanges of their own, so that no user needs access to the default exchange, which
routes to every queue (RabbitMQ guide, "Authentication, Authorisation, Access Control").
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, Protocol

from spot_work.queue.settings import Queue

REPLY_QUEUE_EXPIRES_SECONDS: Final = 1800
"""Time without a consumer after which RabbitMQ deletes a reply queue: longer than a broker restart."""


_DECLARED: Final = "declared"
"""Fragment of a URL: the queue of requests exists, and its user may not declare it."""


class Declaration(Protocol):
    """A call to the broker that confirms its completion."""

    def __call__(self, *, callback: Any) -> object:
        """Start the call; ``callback`` gets the broker's response."""


Declarations = Iterator[Declaration]
"""Calls to the broker; each is made after the one before has completed."""


def dead_letter_queue(queue: Queue) -> str:
    """Return the name of the dead-letter queue."""
    return f"{queue.name}.dead"


def dead_letter_exchange(queue: Queue) -> str:
    """Return the name of the exchange to which workers publish dead letters with their reason."""
    return f"{queue.name}.dead"


def cancellation_exchange(queue: Queue) -> str:
    """Return the name of the exchange that notifies all workers of cancelled requests."""
    return f"{queue.name}.withdrawn"


def request_exchange(queue: Queue) -> str:
    """Return the name of the exchange of requests; their routing key is the queue's name."""
    return f"{queue.name}.requests"


def reply_exchange(queue: Queue) -> str:
    """Return the name of the exchange of replies; their routing key is the reply queue's name."""
    return f"{queue.name}.replies"


def has_reply_exchange(queue: Queue, reply_to: str) -> bool:
    """Return whether a reply queue is bound to the exchange of replies, by its name.

    Other AMQP clients may have reply queues of the default exchange only.
    """
    return reply_to.startswith(f"{reply_exchange(queue)}.")


def is_declared(url: str) -> bool:
    """Return whether the URL's user may not declare the queue of requests."""
    return url.strip().rpartition("#")[2] == _DECLARED


def request_queue(channel: Any, queue: Queue, *, is_declared: bool) -> Declarations:
    """Yield the declarations of a queue of requests and of what belongs to it; none if it is declared.

    A passive declaration would need a permission on each: to configure in RabbitMQ 4.2.6 and 4.3.0, any since
    (rabbitmq-server, pull requests 16085 and 16272). What is missing fails at its first use.
    """
    if is_declared:
        return
    yield partial(
        channel.queue_declare, dead_letter_queue(queue), durable=True, arguments={"x-queue-type": "quorum"}
    )
    yield partial(channel.exchange_declare, cancellation_exchange(queue), "fanout", durable=True)
    arguments: dict[str, Any] = {
        "x-queue-type": "quorum",
        "x-delivery-limit": queue.max_deliveries - 1,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead_letter_queue(queue),
        # A message leaves only after the dead-letter queue has confirmed it. Requires "reject-publish".
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    if queue.max_length:
        arguments["x-max-length"] = queue.max_length
    yield partial(channel.queue_declare, queue.name, durable=True, arguments=arguments)
    yield partial(channel.exchange_declare, request_exchange(queue), "direct", durable=True)
    yield partial(channel.exchange_declare, reply_exchange(queue), "direct", durable=True)
    yield partial(channel.exchange_declare, dead_letter_exchange(queue), "direct", durable=True)
    yield partial(channel.queue_bind, queue.name, request_exchange(queue), queue.name)
    dead = dead_letter_queue(queue)
    yield partial(channel.queue_bind, dead, dead_letter_exchange(queue), dead)


def reply_queue(channel: Any, queue: Queue, name: str, *, is_new: bool) -> Declarations:
    """Yield the declarations of a client's reply queue, which survives the loss of a node.

    A queue that is not new is only looked up: one that was deleted must not be created again unnoticed,
    because the replies in it are lost. RabbitMQ's direct reply-to loses a reply with the connection that
    waits for it; a classic queue is unavailable while its node is.
    """
    arguments = {"x-queue-type": "quorum", "x-expires": 1000 * REPLY_QUEUE_EXPIRES_SECONDS}
    if not is_new:
        yield partial(channel.queue_declare, name, passive=True)
        return
    yield partial(channel.queue_declare, name, durable=True, arguments=arguments)
    yield partial(channel.queue_bind, name, reply_exchange(queue), name)
