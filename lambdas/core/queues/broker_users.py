"""Users of a RabbitMQ broker: their permissions, their URLs, and when their passwords are rotated.

A user has two names in turn, of which the URL in its secret has one. A rotation sets a new password for the
other name, so the URL before it stays valid until the next rotation: no connection is refused.
Sources: Amazon MQ guide, "Simple authentication and authorization" (users are created with the management
API; the tags ``administrator``, ``management`` and ``monitoring``); Secrets Manager guide, "Lambda function
rotation strategies", alternating users; RabbitMQ guides "Authentication, Authorisation, Access Control" (what
each operation requires) and "Management" (``management`` sees what its user may access).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from contracts.broker_users import BrokerQueue, BrokerRole, BrokerUser, ManagedBroker

ROTATION_SECONDS: Final = 30 * 86_400
"""Age of a password at which it is rotated."""
_PREFIX: Final = "gpu-spot."
"""Prefix of the users' names on a broker; users with other names are not changed."""
_DECLARED: Final = "#declared"
"""Fragment of a URL whose user may not declare the queue of requests: `spot_work` only checks it."""
_SERVER_NAMED: Final = r"amq\.gen-.*"
"""Queues whose names the broker generates: those of workers for cancellations."""
_HASHING: Final = "rabbit_password_hashing_sha256"
_SALT_BYTES: Final = 4
_NAMESPACE: Final = uuid.UUID("0b0f5a37-6f52-4f0e-9c0e-7d7b7b0a3f55")


@dataclass(frozen=True, slots=True)
class BrokerCall:
    """A call of the management API; ``path`` is below ``/api``."""

    method: str
    path: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BrokerPermissions:
    """A user's tags, and regular expressions of the resources that it may configure, write and read."""

    tags: str
    configure: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class BrokerLogin:
    """A user's name and password."""

    name: str
    password: str

    def __repr__(self) -> str:
        """Return the name without the password, for error messages."""
        return self.name


def names_of(user: BrokerUser) -> tuple[str, str]:
    """Return the two names of a user on its broker."""
    return f"{_PREFIX}{user.name}.1", f"{_PREFIX}{user.name}.2"


def next_name(user: BrokerUser, current: str) -> str:
    """Return the name that the next rotation uses."""
    first, second = names_of(user)
    return second if current == first else first


def former_names(broker: ManagedBroker, present: Iterable[str]) -> list[str]:
    """Return the names on the broker of users that the stack no longer has."""
    allowed = {name for user in broker.users for name in names_of(user)}
    return sorted(name for name in present if name.startswith(_PREFIX) and name not in allowed)


def permissions(user: BrokerUser) -> BrokerPermissions:
    """Return a user's permissions.

    None has access to the default exchange, which routes to every queue: requests and replies have exchanges
    of their own. The name of a client's reply queue cannot be guessed, and clients may list none.
    """
    if user.role is BrokerRole.MONITOR:
        return BrokerPermissions("management", "^$", "^$", "^$")
    grants = [_of_client(user.queue)]
    if user.role is BrokerRole.WORKERS:
        grants = [_of_worker(user.queue), *map(_of_client, user.calls)]
    return BrokerPermissions("", *map(_any_of, zip(*grants, strict=True)))


def _of_worker(queue: str) -> tuple[list[str], list[str], list[str]]:
    """Return what workers of a queue may configure, write and read."""
    name = re.escape(queue)
    return (
        [_SERVER_NAMED],
        [_SERVER_NAMED, rf"{name}\.replies", rf"{name}\.dead"],
        [_SERVER_NAMED, name, rf"{name}\.withdrawn"],
    )


def _of_client(queue: str) -> tuple[list[str], list[str], list[str]]:
    """Return what clients of a queue may configure, write and read.

    To ask for the length of the queue RabbitMQ requires any permission on it, since 4.2.7 (rabbitmq-server,
    pull request 16272). To write to it neither reads nor deletes it.
    """
    name = re.escape(queue)
    reply_queue = rf"{name}\.replies\.[0-9a-f]{{32}}"
    writable = [reply_queue, name, rf"{name}\.requests", rf"{name}\.withdrawn"]
    return [reply_queue], writable, [reply_queue, rf"{name}\.replies"]


def _any_of(parts: tuple[list[str], ...]) -> str:
    return f"^({'|'.join(name for part in parts for name in part)})$"


def declarations(queue: BrokerQueue, vhost: str) -> Iterator[BrokerCall]:
    """Yield the declarations of a queue of requests, as `spot_work` makes them where it may."""
    root = quote(vhost, safe="")
    arguments: dict[str, Any] = {
        "x-queue-type": "quorum",
        "x-delivery-limit": queue.max_deliveries - 1,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": f"{queue.name}.dead",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    if queue.max_length:
        arguments["x-max-length"] = queue.max_length
    dead = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
    yield BrokerCall("PUT", f"queues/{root}/{queue.name}.dead", dead)
    kinds = {"withdrawn": "fanout", "requests": "direct", "replies": "direct", "dead": "direct"}
    for suffix, kind in kinds.items():
        body = {"type": kind, "durable": True}
        yield BrokerCall("PUT", f"exchanges/{root}/{queue.name}.{suffix}", body)
    yield BrokerCall("PUT", f"queues/{root}/{queue.name}", {"durable": True, "arguments": arguments})
    for exchange, bound in ((f"{queue.name}.requests", queue.name), (f"{queue.name}.dead",) * 2):
        binding = {"routing_key": bound, "arguments": {}}
        yield BrokerCall("POST", f"bindings/{root}/e/{exchange}/q/{bound}", binding)


def set_password(login: BrokerLogin, tags: str) -> BrokerCall:
    """Return the call that creates a user, or sets its password and tags."""
    return BrokerCall("PUT", f"users/{quote(login.name)}", {"password": login.password, "tags": tags})


def set_permissions(name: str, vhost: str, granted: BrokerPermissions) -> BrokerCall:
    """Return the call that sets a user's permissions."""
    body = {"configure": granted.configure, "write": granted.write, "read": granted.read}
    return BrokerCall("PUT", f"permissions/{quote(vhost, safe='')}/{quote(name)}", body)


def has_password(user: Mapping[str, Any], login: BrokerLogin) -> bool:
    """Return whether a user of the management API's list has this password.

    The hash is a salt of four bytes and the SHA-256 of salt and password.
    Source: RabbitMQ guide "Credentials and Passwords".
    """
    if user.get("hashing_algorithm") != _HASHING:
        return False
    try:
        stored = base64.b64decode(str(user.get("password_hash")), validate=True)
    except ValueError:
        return False
    salt, digest = stored[:_SALT_BYTES], stored[_SALT_BYTES:]
    return hmac.compare_digest(digest, hashlib.sha256(salt + login.password.encode()).digest())


def has_permissions(listed: Mapping[str, Any], granted: BrokerPermissions) -> bool:
    """Return whether an entry of the management API's list has these permissions."""
    return all(listed.get(key) == getattr(granted, key) for key in ("configure", "write", "read"))


def has_tags(user: Mapping[str, Any], tags: str) -> bool:
    """Return whether a user has these tags: a text before RabbitMQ 3.9, since then a list."""
    present = user.get("tags")
    return ([*filter(None, present.split(","))] if isinstance(present, str) else present) == (
        [tags] if tags else []
    )


def url(administrator: str, login: BrokerLogin) -> str:
    """Return a user's URL: the administrator's with another login, for a queue that is declared."""
    broker = urlsplit(administrator.strip())
    address = broker.netloc.rpartition("@")[2]
    return f"{broker.scheme}://{quote(login.name)}:{quote(login.password)}@{address}{broker.path}{_DECLARED}"


def administrators_url(administrator: str, password: str) -> str:
    """Return the administrator's URL with another password."""
    broker = urlsplit(administrator.strip())
    address = broker.netloc.rpartition("@")[2]
    return f"{broker.scheme}://{broker.username}:{quote(password)}@{address}{broker.path}"


def login_of(text: str) -> BrokerLogin | None:
    """Return the login of a URL; None for a text that is none."""
    try:
        broker = urlsplit(text.strip())
    except ValueError:
        return None
    if not (broker.username and broker.password):
        return None
    return BrokerLogin(unquote(broker.username), unquote(broker.password))


def is_due(user: BrokerUser, text: str, administrator: str, age_seconds: float) -> bool:
    """Return whether a user needs another password: its URL is old, of another broker, or none of ours."""
    login = login_of(text)
    if login is None or login.name not in names_of(user) or text != url(administrator, login):
        return True
    return age_seconds >= ROTATION_SECONDS


def next_version_id(secret: str, current_version_id: str, administrator: str) -> str:
    """Return the id of the version that follows the current one.

    Two runs at once agree on it, so that one uses the password that the other has stored.
    """
    address = urlsplit(administrator.strip()).netloc.rpartition("@")[2]
    return str(uuid.uuid5(_NAMESPACE, f"{secret} {current_version_id} {address}"))
