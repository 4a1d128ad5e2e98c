"""RabbitMQ's management API: where a broker has it, and what it answers about a queue.

Checked against RabbitMQ 3.10 (tests/real): columns can be chosen, length and totals are missing for some
seconds after a start, the totals until the first message after it. Without its metrics collector
(``management_agent.disable_metrics_collector``) the length is never there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from lambdas.core.queues.history import Counts

_COLUMNS: Final = (
    "state",
    "consumers",
    "messages_ready",
    "messages_unacknowledged",
    "message_stats.publish",
    "message_stats.ack",
)
"""All that is read: the whole answer has some hundred bytes for each reader."""
_DEAD: Final = ("crashed", "down", "minority", "stopped")
"""States of a queue without a leader: what is told of it is old."""
_AMAZON: Final = (".amazonaws.com", ".amazonaws.com.cn", ".on.aws")
"""Endings of the names that Amazon MQ gives its brokers, which answer on 443, too."""
_PORTS: Final = {"amqps": ("https", 15671), "amqp": ("http", 15672)}
"""RabbitMQ guide, "Networking": ports of the management plugin, by what AMQP is spoken over."""
_MOST_TOLD: Final = 80


@dataclass(frozen=True, slots=True)
class ManagementApi:
    """Where it is, and as whom to ask: ``path`` comes before ``/api``."""

    scheme: str
    host: str
    port: int
    path: str
    user: str
    password: str
    vhost: str

    def __repr__(self) -> str:
        """Leave the password out: this stands in errors."""
        return f"{self.scheme}://{self.host}:{self.port}{self.path}"

    def queue(self, name: str) -> str:
        """Return the path and query that ask for one queue."""
        place = f"{quote(self.vhost, safe='')}/{quote(name, safe='')}"
        return f"{self.path}/api/queues/{place}?columns={','.join(_COLUMNS)}"


def of_broker(url: str, management: str = "") -> ManagementApi:
    """Return the management API of the broker at ``url``, or at its own address ``management``.

    Raises ``ValueError``, without the password in it.
    """
    try:
        broker = urlsplit(url.strip())
        host, user, password = broker.hostname, unquote(broker.username or ""), unquote(broker.password or "")
        scheme, port = _PORTS[broker.scheme]
        _ = broker.port  # raises for what is no number
        own = urlsplit(management)
        if management:
            host, scheme = own.hostname, own.scheme
            port = own.port or {"https": 443, "http": 80}[scheme]
        elif broker.scheme == "amqps" and (host or "").endswith(_AMAZON):
            port = 443
    except (KeyError, ValueError):
        raise ValueError("the broker's URL is not amqps://user:password@host:port") from None
    if not (host and user and password):
        raise ValueError("the broker's URL names no host, user or password")
    # As pika reads it: no path, or an empty one, is the vhost "/".
    vhost = unquote(broker.path.removeprefix("/").partition("/")[0]) or "/"
    return ManagementApi(scheme, host, port, own.path.rstrip("/"), user, password, vhost)


def counts(status: int, body: bytes) -> Counts:
    """Return what an answer says of a queue; raise ``ValueError`` with one line for one that says nothing."""
    if status != 200:
        raise ValueError(_REFUSALS.get(status, f"the management API answers with status {status}"))
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        shown = body[:_MOST_TOLD].decode("utf-8", "replace")
        raise ValueError(f"the management API answers no JSON: {shown!r}") from None
    # An answer without any of the columns is an empty list.
    if not isinstance(told, dict) or "messages_ready" not in told:
        raise ValueError(
            "the management API tells no length: the broker has just started, "
            "or its metrics collector is disabled"
        )
    if told.get("state") in _DEAD:
        raise ValueError(f"the queue is {told['state']}")
    totals = told.get("message_stats", {})
    if not isinstance(totals, dict):
        raise ValueError("message_stats is no object")
    return Counts(
        ready=_count(told, "messages_ready"),
        taken=_count(told, "messages_unacknowledged"),
        readers=_count(told, "consumers"),
        # Missing until the first message after the broker's start.
        published=_count({"publish": 0, **totals}, "publish"),
        ended=_count({"ack": 0, **totals}, "ack"),
    )


_REFUSALS: Final = {
    401: "the broker refuses the secret's user, or that one has not the tag 'management' (401)",
    403: "the secret's user may not ask for the queue (403)",
    404: "the broker has no such queue (404)",
}


def _count(told: dict[str, Any], name: str) -> int:
    value = told.get(name)
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} is {str(value)[:_MOST_TOLD]!r}, a whole number from 0 is needed")
    return value
