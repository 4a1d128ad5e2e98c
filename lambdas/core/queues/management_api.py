"""Client of RabbitMQ's management API: its address, and the counters of a queue from a response.

Checked against RabbitMQ 3.10 (tests/real): columns can be selected; after a start the length is missing for
some seconds and the totals until the first message. Without the metrics collector
(``management_agent.disable_metrics_collector``) the length is always missing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from contracts.partitions import DNS_SUFFIXES
from lambdas.core.queues.history import QueueCounts

_COLUMNS: Final = (
    "state",
    "consumers",
    "messages_ready",
    "messages_unacknowledged",
    "message_stats.publish",
    "message_stats.ack",
)
"""The columns that are read; the full response has some hundred bytes for each consumer."""
_UNAVAILABLE_STATES: Final = ("crashed", "down", "minority", "stopped")
"""States of a queue without a leader; its counters are stale."""
_AMAZON_MQ_SUFFIXES: Final = (*(f".{suffix}" for suffix in DNS_SUFFIXES.values()), ".on.aws")
"""Domains of Amazon MQ brokers; their management API also listens on port 443."""
_PORTS: Final = {"amqps": ("https", 15671), "amqp": ("http", 15672)}
"""Scheme and port of the management plugin by scheme of the broker. Source: RabbitMQ guide, "Networking"."""
_MAX_EXCERPT: Final = 80


@dataclass(frozen=True, slots=True)
class ManagementApi:
    """The address and credentials of a management API; ``path`` is the prefix of ``/api``."""

    scheme: str
    host: str
    port: int
    path: str
    user: str
    password: str
    vhost: str

    def __repr__(self) -> str:
        """Return the address without the password, for error messages."""
        return f"{self.scheme}://{self.host}:{self.port}{self.path}"

    def queue_path(self, name: str) -> str:
        """Return the path and query string of one queue."""
        location = f"{quote(self.vhost, safe='')}/{quote(name, safe='')}"
        return f"{self.path}/api/queues/{location}?columns={','.join(_COLUMNS)}"


def from_broker_url(url: str, management: str = "") -> ManagementApi:
    """Return the management API of the broker at ``url``, or at the address ``management`` if it is set.

    Raises:
        ValueError: an address is malformed; the message does not contain the password.
    """
    try:
        broker = urlsplit(url.strip())
        host, user, password = broker.hostname, unquote(broker.username or ""), unquote(broker.password or "")
        scheme, port = _PORTS[broker.scheme]
        _ = broker.port  # raises if it is not a number
        management_url = urlsplit(management)
        if management:
            host, scheme = management_url.hostname, management_url.scheme
            port = management_url.port or {"https": 443, "http": 80}[scheme]
        elif broker.scheme == "amqps" and (host or "").endswith(_AMAZON_MQ_SUFFIXES):
            port = 443
    except (KeyError, ValueError):
        raise ValueError(
            "the broker's URL is malformed; write it as amqps://user:password@host:port"
        ) from None
    if not (host and user and password):
        raise ValueError("the broker's URL has no host, user or password")
    # As in pika: no path, or an empty one, is the vhost "/".
    vhost = unquote(broker.path.removeprefix("/").partition("/")[0]) or "/"
    return ManagementApi(scheme, host, port, management_url.path.rstrip("/"), user, password, vhost)


def parse_counts(status: int, body: bytes) -> QueueCounts:
    """Return the counters in a response; raise ``ValueError`` with one line if it has none."""
    if status != 200:
        raise ValueError(_STATUS_ERRORS.get(status, f"the management API returned status {status}"))
    try:
        queue = json.loads(body)
    except (ValueError, RecursionError):
        excerpt = body[:_MAX_EXCERPT].decode("utf-8", "replace")
        raise ValueError(f"the management API did not return JSON: {excerpt!r}") from None
    # A response without any of the columns is an empty list.
    if not isinstance(queue, dict) or "messages_ready" not in queue:
        raise ValueError(
            "the management API returned no queue length: the broker has just started, "
            "or its metrics collector is disabled"
        )
    if queue.get("state") in _UNAVAILABLE_STATES:
        raise ValueError(f"the queue is {queue['state']}")
    totals = queue.get("message_stats", {})
    if not isinstance(totals, dict):
        raise ValueError("message_stats is not a JSON object")
    return QueueCounts(
        ready=_count(queue, "messages_ready"),
        in_flight=_count(queue, "messages_unacknowledged"),
        consumers=_count(queue, "consumers"),
        # Missing until the first message after the broker's start.
        published=_count({"publish": 0, **totals}, "publish"),
        acknowledged=_count({"ack": 0, **totals}, "ack"),
    )


_STATUS_ERRORS: Final = {
    401: "the broker rejects the user in the secret, or the user lacks the tag 'management' (401)",
    403: "the user in the secret has no permission for the queue (403)",
    404: "the broker has no such queue (404)",
}


def _count(queue: dict[str, Any], name: str) -> int:
    value = queue.get(name)
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} must be a whole number from 0, not {str(value)[:_MAX_EXCERPT]!r}")
    return value
