"""Creates the users of RabbitMQ brokers, and rotates their passwords."""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets as random_source
import ssl
import string
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from contracts.broker_users import ADMINISTRATOR, BrokerUser, ManagedBroker
from contracts.sentences import alternatives
from lambdas.aws.queues import management_client
from lambdas.core.queues import broker_users, management_api
from lambdas.core.queues.broker_users import BrokerCall, BrokerLogin
from lambdas.core.queues.management_api import ManagementApi

_CHECK_SECONDS: Final = 300.0
"""Between two checks without an error, to save calls of Secrets Manager."""
_PASSWORD_LENGTH: Final = 32
_ALPHABET: Final = string.ascii_letters + string.digits
"""Of passwords: characters that a URL has unquoted."""
_NO_VALUE: Final = "no user yet"
"""Text of a secret's first version, which Secrets Manager labels AWSCURRENT at once (PutSecretValue)."""
_ADMINISTRATOR_TAG: Final = "administrator"
_MAX_EXCERPT: Final = 200
_UNAUTHORIZED: Final = 401


def generate_password() -> str:
    """Return a new password."""
    return "".join(random_source.choice(_ALPHABET) for _ in range(_PASSWORD_LENGTH))


class _Version(NamedTuple):
    """A version of a secret; ``created_at`` in epoch seconds."""

    id: str
    text: str
    created_at: float


@dataclass(slots=True)
class BrokerUserManager:
    """Creates what is missing on brokers, rotates what is due, and deletes users that the stack has no more.

    Of two runs at once, both complete: each step has the same effect when it is repeated.

    Attributes:
        secrets: The client of Secrets Manager.
        clock: Returns epoch seconds.
        password: Generates a password.
        api_of: Returns the management API of a broker's URL.
        tls: Verifies the brokers' certificates, by default with the system's authorities.
    """

    secrets: Any
    clock: Callable[[], float]
    password: Callable[[], str] = generate_password
    api_of: Callable[[str], ManagementApi] = management_api.from_broker_url
    tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    _next_check: float = 0.0

    def run(self, brokers: Sequence[ManagedBroker], rotate: frozenset[str], seconds: float) -> list[str]:
        """Check the brokers within ``seconds``, rotate the users named in ``rotate``; return the errors.

        Does nothing within five minutes of a check without errors, unless there are users to rotate.
        """
        allowed = {ADMINISTRATOR, *(user.name for broker in brokers for user in broker.users)}
        if unknown := rotate - allowed:
            return [f"rotate must be {alternatives(sorted(allowed))}, not {sorted(unknown)[0]!r}"]
        if not rotate and self.clock() < self._next_check:
            return []
        errors: list[str] = []
        ends_at = time.monotonic() + seconds
        for index, broker in enumerate(brokers):
            share = (ends_at - time.monotonic()) / (len(brokers) - index)
            try:
                errors += self._maintain(broker, rotate, time.monotonic() + share)
            except Exception as error:  # reported; the other brokers are maintained
                errors.append(f"broker of {broker.administrator}: {_line(error)}")
        self._next_check = 0.0 if errors else self.clock() + _CHECK_SECONDS
        return errors

    def _maintain(self, broker: ManagedBroker, rotate: frozenset[str], ends_at: float) -> Iterator[str]:
        administrator, session = self._log_in(broker.administrator, ends_at)
        for queue in broker.queues:
            try:
                for declaration in broker_users.declarations(queue, session.api.vhost):
                    session.make(declaration)
            except ValueError as error:
                yield f"queue {queue.name}: {error}"
        present = {user["name"]: user for user in session.entries("users")}
        listed = {
            entry["user"]: entry
            for entry in session.entries("permissions")
            if entry["vhost"] == session.api.vhost
        }
        for user in broker.users:
            change = _UserChange(user, administrator.text, session, present, listed)
            try:
                self._maintain_user(change, is_forced=user.name in rotate)
            except Exception as error:  # reported; the other users are maintained
                yield f"user {user.name}: {_line(error)}"
        for name in broker_users.former_names(broker, present):
            session.make(BrokerCall("DELETE", f"users/{name}", {}))
        if ADMINISTRATOR in rotate:
            self._rotate_administrator(broker.administrator, administrator, session)

    def _maintain_user(self, change: _UserChange, *, is_forced: bool) -> None:
        user, administrator = change.user, change.administrator
        current = self._version(user.secret)
        if current is None:
            self.secrets.put_secret_value(SecretId=user.secret, SecretString=_NO_VALUE)
            current = self._version(user.secret)
            assert current is not None
        age = self.clock() - current.created_at
        if not is_forced and not broker_users.is_due(user, current.text, administrator, age):
            change.apply(current.text)
            return
        former = broker_users.login_of(current.text)
        name = broker_users.next_name(user, former.name if former else "")

        def text() -> str:
            return broker_users.url(administrator, BrokerLogin(name, self.password()))

        version = self._next_version(user.secret, current, administrator, text)
        change.apply(version.text)
        self._promote(user.secret, version, current)

    def _rotate_administrator(self, secret: str, current: _Version, session: _Session) -> None:
        def text() -> str:
            return broker_users.administrators_url(current.text, self.password())

        version = self._next_version(secret, current, current.text, text)
        login = broker_users.login_of(version.text)
        assert login is not None
        session.make(broker_users.set_password(login, _ADMINISTRATOR_TAG))
        self._promote(secret, version, current)

    def _log_in(self, secret: str, ends_at: float) -> tuple[_Version, _Session]:
        """Return the administrator's version that the broker accepts, and a session with it.

        A rotation that stopped before its end leaves a broker that accepts only the next version.
        """
        current = self._version(secret)
        if current is None:
            raise ValueError("the administrator's secret has no value")
        session = _Session(self.api_of(current.text), self.tls, ends_at)
        if session.is_accepted():
            return current, session
        version = self._version(secret, broker_users.next_version_id(secret, current.id, current.text))
        if version is not None:
            session = _Session(self.api_of(version.text), self.tls, ends_at)
            if session.is_accepted():
                self._promote(secret, version, current)
                return version, session
        raise ValueError(f"{session.api!r} rejects the administrator (401)")

    def _version(self, secret: str, version_id: str = "") -> _Version | None:
        """Return the current version or the one with this id; None if there is none."""
        chosen = {"VersionId": version_id} if version_id else {"VersionStage": "AWSCURRENT"}
        try:
            response = self.secrets.get_secret_value(SecretId=secret, **chosen)
        except self.secrets.exceptions.ResourceNotFoundException:
            return None
        return _Version(response["VersionId"], response["SecretString"], response["CreatedDate"].timestamp())

    def _next_version(
        self, secret: str, current: _Version, administrator: str, text: Callable[[], str]
    ) -> _Version:
        """Return the version that follows ``current``; store it first, with a new ``text``, if it is not."""
        version_id = broker_users.next_version_id(secret, current.id, administrator)
        version = self._version(secret, version_id)
        if version is None:
            # Another run may have stored it a moment ago.
            with contextlib.suppress(self.secrets.exceptions.ResourceExistsException):
                self.secrets.put_secret_value(
                    SecretId=secret,
                    ClientRequestToken=version_id,
                    SecretString=text(),
                    VersionStages=["AWSPENDING"],
                )
            version = self._version(secret, version_id)
            assert version is not None
        return version

    def _promote(self, secret: str, version: _Version, current: _Version) -> None:
        """Make ``version`` the current one; the former one becomes AWSPREVIOUS."""
        self.secrets.update_secret_version_stage(
            SecretId=secret,
            VersionStage="AWSCURRENT",
            MoveToVersionId=version.id,
            RemoveFromVersionId=current.id,
        )


@dataclass(frozen=True, slots=True)
class _Session:
    """Calls of a management API until ``ends_at``, of the monotonic clock."""

    api: ManagementApi
    tls: ssl.SSLContext
    ends_at: float

    def is_accepted(self) -> bool:
        """Return whether the broker accepts the login."""
        status, body = self._call("GET", "whoami")
        if status not in (200, _UNAUTHORIZED):
            raise ValueError(f"GET whoami: {_reason(status, body)}")
        return status == 200

    def entries(self, path: str) -> list[dict[str, Any]]:
        """Return a list of the API."""
        status, body = self._call("GET", path)
        if status != 200:
            raise ValueError(f"GET {path}: {_reason(status, body)}")
        entries: list[dict[str, Any]] = json.loads(body)
        return entries

    def make(self, call: BrokerCall) -> None:
        """Make a call; raise ``ValueError`` with the broker's reason if it is rejected.

        What is to be deleted and is not there has been deleted by another run.
        """
        status, body = self._call(call.method, call.path, call.body)
        if not 200 <= status < 300 and (call.method, status) != ("DELETE", 404):
            raise ValueError(f"{call.method} {call.path}: {_reason(status, body)}")

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
        full = f"{self.api.path}/api/{path}"
        try:
            return management_client.call(self.api, full, self.tls, self.ends_at, method, body)
        except (OSError, http.client.HTTPException) as error:
            raise ValueError(f"{self.api!r} does not respond: {type(error).__name__}: {error}") from None


@dataclass(frozen=True, slots=True)
class _UserChange:
    """A user, and what the broker lists of users and permissions, by name."""

    user: BrokerUser
    administrator: str
    session: _Session
    present: Mapping[str, Mapping[str, Any]]
    listed: Mapping[str, Mapping[str, Any]]

    def apply(self, text: str) -> None:
        """Make the broker accept the login of a URL, with the user's permissions under both names."""
        login = broker_users.login_of(text)
        assert login is not None
        granted = broker_users.permissions(self.user)
        entry = self.present.get(login.name, {})
        if not (broker_users.has_password(entry, login) and broker_users.has_tags(entry, granted.tags)):
            self.session.make(broker_users.set_password(login, granted.tags))
        for name in broker_users.names_of(self.user):
            is_present = name == login.name or name in self.present
            if is_present and not broker_users.has_permissions(self.listed.get(name, {}), granted):
                self.session.make(broker_users.set_permissions(name, self.session.api.vhost, granted))


def _reason(status: int, body: bytes) -> str:
    """Return the reason of a rejected call; the API's responses contain no password."""
    text = body[:_MAX_EXCERPT].decode("utf-8", "replace")
    with contextlib.suppress(ValueError, KeyError, TypeError):
        text = str(json.loads(body)["reason"])[:_MAX_EXCERPT]
    return f"status {status} {' '.join(text.split())}"


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
