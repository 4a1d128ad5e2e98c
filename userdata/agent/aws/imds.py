"""Client of the instance metadata service, IMDSv2 only; renews its session token."""

from __future__ import annotations

import calendar
import json
import threading
import time
import urllib.parse
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from userdata.agent.aws import plain_http
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError

DEFAULT_URL: Final = "http://169.254.169.254"

SPOT_ACTION: Final = "/latest/meta-data/spot/instance-action"
REBALANCE: Final = "/latest/meta-data/events/recommendations/rebalance"
LIFECYCLE_STATE: Final = "/latest/meta-data/autoscaling/target-lifecycle-state"
PURCHASE_OPTION: Final = "/latest/meta-data/instance-life-cycle"
GROUP_TAG: Final = "/latest/meta-data/tags/instance/aws:autoscaling:groupName"
PRIVATE_ADDRESS: Final = "/latest/meta-data/local-ipv4"
IDENTITY: Final = "/latest/dynamic/instance-identity/document"

_TOKEN_PATH: Final = "/latest/api/token"  # noqa: S105 - a path
_TOKEN_SECONDS: Final = 21600  # the maximum of IMDS
_RENEW_BEFORE: Final = 300.0


class MetadataUnavailableError(AgentError):
    """The service did not respond, or with another status than 200 and 404."""


@dataclass(frozen=True)
class MetadataDocument:
    """A document and the service's time (Date header, epoch seconds)."""

    text: str
    date: float | None


@dataclass(frozen=True)
class IdentityDocument:
    """The fields of the instance identity document that the agent needs.

    ``launched`` is in epoch seconds, 0 if unknown. ``account`` is empty on premises.
    """

    instance: str
    zone: str
    region: str
    instance_type: str
    launched: float = 0.0
    account: str = ""


class Metadata:
    """A client for one instance; its requests run one at a time."""

    def __init__(self, clock: Clock, url: str = DEFAULT_URL, timeout: float = 1.0) -> None:
        parts = urllib.parse.urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 80)
        self._clock = clock
        self._timeout = timeout
        self._token = ""
        self._token_ends = 0.0
        self._lock = threading.Lock()

    def get(self, path: str) -> MetadataDocument | None:
        """Return the document at ``path``, or None if there is none (404).

        Raises:
            MetadataUnavailableError: the service did not respond, or rejected a new token.
        """
        with self._lock:
            fresh = self._ensure_token()
            status, document = self._request("GET", path, {"X-aws-ec2-metadata-token": self._token})
            if status == 401 and not fresh:  # the token is unknown after a restore, or a stop and start
                self._token = ""
                self._ensure_token()
                status, document = self._request("GET", path, {"X-aws-ec2-metadata-token": self._token})
        if status == 404:
            return None
        if status != 200:
            raise MetadataUnavailableError(f"the metadata service answers {path} with status {status}")
        return document

    def identity(self) -> IdentityDocument:
        """Return the instance's id, zone, region, type, launch time and account."""
        response = self.get(IDENTITY)
        if response is None:
            raise MetadataUnavailableError(f"the metadata service has no {IDENTITY}")
        document: dict[str, Any] = json.loads(response.text)
        return IdentityDocument(
            instance=document["instanceId"],
            zone=document["availabilityZone"],
            region=document["region"],
            instance_type=document["instanceType"],
            launched=_launch(document.get("pendingTime")),
            account=document["accountId"],
        )

    def lifecycle_state(self) -> str:
        """Return the target lifecycle state, such as ``InService``; empty outside an Auto Scaling group."""
        return self._text(LIFECYCLE_STATE)

    def purchase_option(self) -> str:
        """Return the purchase option: ``spot``, ``on-demand`` or another value of AWS; or empty."""
        return self._text(PURCHASE_OPTION)

    def private_address(self) -> str:
        """Return the instance's primary private IPv4 address."""
        if not (address := self._text(PRIVATE_ADDRESS)):
            raise MetadataUnavailableError(f"the metadata service has no {PRIVATE_ADDRESS}")
        return address

    def auto_scaling_group(self) -> str:
        """Return the name of the instance's Auto Scaling group, from its tags; empty if it has none."""
        return self._text(GROUP_TAG)

    def _text(self, path: str) -> str:
        document = self.get(path)
        return document.text.strip() if document else ""

    def _ensure_token(self) -> bool:
        """Fetch a token unless the current one is still valid; return whether it is new."""
        if self._token and self._clock.monotonic() < self._token_ends - _RENEW_BEFORE:
            return False
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_SECONDS)}
        try:
            status, document = self._request("PUT", _TOKEN_PATH, headers)
            if status != 200 or not document.text:
                error_text = f"the metadata service answers {_TOKEN_PATH} with status {status}"
                raise MetadataUnavailableError(error_text)
        except MetadataUnavailableError:
            if self._token and self._clock.monotonic() < self._token_ends:
                return False  # still valid; the next call retries
            raise
        self._token = document.text
        self._token_ends = self._clock.monotonic() + _TOKEN_SECONDS
        return True

    def _request(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, MetadataDocument]:
        try:
            status, response_headers, text = plain_http.request(
                self._address, method, path, headers, self._timeout
            )
        except OSError as error:
            raise MetadataUnavailableError(f"metadata {path}: {str(error) or type(error).__name__}") from None
        return status, MetadataDocument(text, _epoch(response_headers.get("date", "")))


def is_warmed(lifecycle_state: str) -> bool:
    """Return whether the instance is in the warm pool or entering it: it must not report or run work."""
    return lifecycle_state.startswith("Warmed:")


def _launch(text: object) -> float:
    """Parse ``pendingTime`` (EC2 user guide, "Instance identity documents"); 0 if missing."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0


def _epoch(header: str) -> float | None:
    """Parse a Date header (RFC 9110: GMT, English names, as in the agent's default locale)."""
    try:
        return float(calendar.timegm(time.strptime(header, "%a, %d %b %Y %H:%M:%S GMT")))
    except ValueError:
        return None
