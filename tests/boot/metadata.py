"""The metadata service of all machines: version 2 only, one hop, by the address of who asks; faults."""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from typing import Final, Protocol

from userdata.agent.aws.imds import LIFECYCLE_STATE, SPOT_ACTION

ROLE: Final = "/latest/meta-data/iam/security-credentials/"
_NAME: Final = "gpu-spot-instance"


@dataclass(frozen=True)
class Fault:
    """Answers of a service, or of one operation or path of it, until a time of the monotonic clock."""

    service: str
    until: float
    operation: str = ""
    """How its name begins."""
    status: int = 500
    code: str = "InternalError"
    is_silent: bool = False
    """Whether it answers only at the end."""


def met(faults: list[Fault], service: str, operation: str) -> Fault | None:
    """Return the fault that a call meets, a silent one at its end."""
    for fault in list(faults):
        if (
            fault.service == service
            and operation.startswith(fault.operation)
            and time.monotonic() < fault.until
        ):
            while fault.is_silent and fault in faults and time.monotonic() < fault.until:
                time.sleep(0.1)
            return fault
    return None


class Documents(Protocol):
    """What the service knows of the machine at an address."""

    def __call__(self, address: str) -> Mapping[str, str]: ...


@dataclass
class Metadata:
    """The service; its faults are those of ``metadata``."""

    documents: Documents
    faults: list[Fault]
    more: dict[str, dict[str, str]] = field(default_factory=dict)
    """Documents by address, in front of the others."""
    _tokens: set[str] = field(default_factory=set)

    def warm(self, address: str, is_warm: bool) -> None:
        """Show that an instance goes into its group's warm pool, or no longer."""
        self.more.setdefault(address, {}).pop(LIFECYCLE_STATE, None)
        if is_warm:
            self.more[address][LIFECYCLE_STATE] = "Warmed:Stopped"

    def notice(self, address: str, seconds: float) -> None:
        """Announce an interruption."""
        at = datetime.now(UTC) + timedelta(seconds=seconds)
        self.more.setdefault(address, {})[SPOT_ACTION] = json.dumps(
            {"action": "terminate", "time": at.strftime("%Y-%m-%dT%H:%M:%SZ")}
        )

    def answer(self, address: str, path: str, token: str | None) -> tuple[int, str]:
        """Return status and text for a GET."""
        if token not in self._tokens:
            return 401, ""
        if not (documents := {**self.documents(address), **self.more.get(address, {})}):
            return 404, ""  # not of AWS
        if path == ROLE:
            return 200, _NAME
        if path == ROLE + _NAME:
            return 200, json.dumps({**credentials(), "Code": "Success", "Type": "AWS-HMAC"})
        return (200, documents[path]) if path in documents else (404, "")

    def handler(self) -> type[BaseHTTPRequestHandler]:
        """Return the handler of its server."""
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                # As on EC2 with the hop limit 1: a container behind a bridge gets no answer.
                self.request.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 1)
                super().setup()

            def do_PUT(self) -> None:
                if self.path != "/latest/api/token" or not self.headers.get(
                    "X-aws-ec2-metadata-token-ttl-seconds"
                ):
                    self._send(400, "")
                    return
                token = secrets.token_urlsafe(16)
                service._tokens.add(token)
                self._send(200, token)

            def do_GET(self) -> None:
                self._send(
                    *service.answer(self._from, self.path, self.headers.get("X-aws-ec2-metadata-token"))
                )

            @property
            def _from(self) -> str:
                return str(self.client_address[0])

            def _send(self, status: int, text: str) -> None:
                if fault := met(service.faults, "metadata", self.path):
                    status, text = fault.status, ""
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None: ...

        return Handler


def credentials() -> dict[str, str]:
    """Return credentials; the access key says when they expire."""
    now = datetime.now(UTC)
    times = {"LastUpdated": now, "Expiration": now + timedelta(hours=6)}
    shown = {name: at.strftime("%Y-%m-%dT%H:%M:%SZ") for name, at in times.items()}
    key = f"ASIA{times['Expiration'].timestamp():.0f}"
    return {"AccessKeyId": key, "SecretAccessKey": "local", "Token": "local", **shown}


def is_expired(key: str) -> bool:
    """Return whether the credentials with this access key have expired."""
    return key.startswith("ASIA") and time.time() > int(key.removeprefix("ASIA"))
