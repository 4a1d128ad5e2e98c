"""The instance metadata service, version 2 only.

A session token, renewed before it ends and when it is refused.
"""

from __future__ import annotations

import calendar
import json
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
MARKET: Final = "/latest/meta-data/instance-life-cycle"
GROUP_TAG: Final = "/latest/meta-data/tags/instance/aws:autoscaling:groupName"
PRIVATE_ADDRESS: Final = "/latest/meta-data/local-ipv4"
IDENTITY: Final = "/latest/dynamic/instance-identity/document"

_TOKEN_PATH: Final = "/latest/api/token"  # noqa: S105 - a path
_TOKEN_SECONDS: Final = 21600  # the most that AWS grants
_RENEW_BEFORE: Final = 300.0


class MetadataUnavailableError(AgentError):
    """The service did not answer, or answered with something else than 200 and 404: nothing is known."""


@dataclass(frozen=True)
class Answer:
    """A document, and the service's own time (its Date header, epoch seconds)."""

    text: str
    date: float | None


@dataclass(frozen=True)
class InstanceFacts:
    """Who we are: the parts of the identity document that the agent needs.

    ``launched`` is in epoch seconds, 0 where the document does not say it.
    """

    instance: str
    zone: str
    region: str
    instance_type: str
    launched: float = 0.0


class Metadata:
    """A client for one instance; not thread-safe, each thread takes its own."""

    def __init__(self, clock: Clock, url: str = DEFAULT_URL, timeout: float = 1.0) -> None:
        parts = urllib.parse.urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 80)
        self._clock = clock
        self._timeout = timeout
        self._token = ""
        self._token_ends = 0.0

    def get(self, path: str) -> Answer | None:
        """Return the document at ``path``, or None when there is none (404).

        Raises:
            MetadataUnavailableError: the service did not answer, or refused even a fresh token.
        """
        fresh = self._ensure_token()
        status, answer = self._request("GET", path, {"X-aws-ec2-metadata-token": self._token})
        if status == 401 and not fresh:  # the service forgot the token: after a restore, or a stop and start
            self._token = ""
            self._ensure_token()
            status, answer = self._request("GET", path, {"X-aws-ec2-metadata-token": self._token})
        if status == 404:
            return None
        if status != 200:
            raise MetadataUnavailableError(f"metadata {path}: status {status}")
        return answer

    def identity(self) -> InstanceFacts:
        """Return the instance's id, zone, region, type and launch."""
        answer = self.get(IDENTITY)
        if answer is None:
            raise MetadataUnavailableError(f"metadata {IDENTITY}: status 404")
        document: dict[str, Any] = json.loads(answer.text)
        return InstanceFacts(
            instance=document["instanceId"],
            zone=document["availabilityZone"],
            region=document["region"],
            instance_type=document["instanceType"],
            launched=_launch(document.get("pendingTime")),
        )

    def lifecycle_state(self) -> str:
        """Return the target lifecycle state, such as ``InService``; empty outside an Auto Scaling group."""
        return self._text(LIFECYCLE_STATE)

    def market(self) -> str:
        """Return how the instance was bought: ``spot``, ``on-demand`` or another word of AWS's; or none."""
        return self._text(MARKET)

    def private_address(self) -> str:
        """Return the instance's first private address (IPv4)."""
        if not (found := self._text(PRIVATE_ADDRESS)):
            raise MetadataUnavailableError(f"metadata {PRIVATE_ADDRESS}: status 404")
        return found

    def auto_scaling_group(self) -> str:
        """Return the name of the instance's Auto Scaling group, from its tags; empty outside of one."""
        return self._text(GROUP_TAG)

    def _text(self, path: str) -> str:
        answer = self.get(path)
        return answer.text.strip() if answer else ""

    def _ensure_token(self) -> bool:
        """Fetch a token unless the one we hold lasts; tell whether it is new."""
        if self._token and self._clock.monotonic() < self._token_ends - _RENEW_BEFORE:
            return False
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_SECONDS)}
        status, answer = self._request("PUT", _TOKEN_PATH, headers)
        if status != 200 or not answer.text:
            if self._token and self._clock.monotonic() < self._token_ends:
                return False  # it still holds; the next call tries again
            raise MetadataUnavailableError(f"metadata {_TOKEN_PATH}: status {status}")
        self._token = answer.text
        self._token_ends = self._clock.monotonic() + _TOKEN_SECONDS
        return True

    def _request(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, Answer]:
        try:
            status, got, text = plain_http.request(self._address, method, path, headers, self._timeout)
        except OSError as error:
            raise MetadataUnavailableError(f"metadata {path}: {str(error) or type(error).__name__}") from None
        return status, Answer(text, _epoch(got.get("date", "")))


def is_warmed(lifecycle_state: str) -> bool:
    """Tell whether the instance is on its way into the warm pool, or in it: then it must keep quiet."""
    return lifecycle_state.startswith("Warmed:")


def _launch(text: object) -> float:
    """Read the launch, ``pendingTime`` (EC2 user guide, "Instance identity documents"); 0 for none."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0


def _epoch(header: str) -> float | None:
    """Read a Date header (RFC 9110: always GMT, English names, which are ours: the agent sets no locale)."""
    try:
        return float(calendar.timegm(time.strptime(header, "%a, %d %b %Y %H:%M:%S GMT")))
    except ValueError:
        return None
