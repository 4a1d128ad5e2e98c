"""What depends on the broker's version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pika import BasicProperties

BrokerVersion = tuple[int, int]
"""Major and minor version."""

_FIRST_WITH_LIMIT: Final = (4, 0)
_FIRST_WITH_PRIORITIES: Final = (4, 0)
_FIRST_WITH_FREE_RETURNS: Final = (4, 3)
_MAX_RETURNS: Final = 10
"""Half of the default delivery limit since RabbitMQ 4.0."""
_RETURNS: Final = "x-delivery-count"


def read(server_properties: Mapping[str, Any] | None) -> BrokerVersion | None:
    """Return a server's version from the properties that it sends at the login; None if it is unknown."""
    match = re.match(r"(\d+)\.(\d+)", str((server_properties or {}).get("version", "")))
    return (int(match[1]), int(match[2])) if match else None


def has_priorities(version: BrokerVersion | None) -> bool:
    """Return whether a quorum queue delivers messages of high priority earlier.

    It needs no declaration (``x-max-priority`` is for classic queues). RabbitMQ 4.0 to 4.2 deliver two of
    high priority for each other one, later versions all of high priority first. Source: RabbitMQ guide
    "Quorum Queues", "Priorities".
    """
    return version is not None and version >= _FIRST_WITH_PRIORITIES


def is_nack_free(version: BrokerVersion | None) -> bool:
    """Return whether a message that is returned with ``basic.nack`` is not counted as delivered.

    Before RabbitMQ 4.3 it counts towards the delivery limit of a quorum queue, which is 20 since 4.0 if none
    is set; earlier versions put it at the end of a queue without a limit. Those that a closed channel
    returns are at the head in all versions, and count. Source: RabbitMQ guide "Quorum Queues", "Poison
    Message Handling" and "Repeated Requeues", and ``rabbit_fifo``.
    """
    return version is not None and version >= _FIRST_WITH_FREE_RETURNS


def is_near_limit(version: BrokerVersion | None, properties: BasicProperties) -> bool:
    """Return whether a message may not be returned much more often: the broker drops it at the limit."""
    returns = (properties.headers or {}).get(_RETURNS)
    has_limit = version is None or _FIRST_WITH_LIMIT <= version < _FIRST_WITH_FREE_RETURNS
    return has_limit and isinstance(returns, int) and returns >= _MAX_RETURNS
