"""The termination notice: its fields, how it is derived from the metadata, and the file that carries it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

from contracts import codec
from contracts.agent.names import NOTICE_FILE
from contracts.limits import NOTICE_SECONDS
from contracts.stored import ContractError, Stored, stored
from userdata.agent.aws.imds import MetadataDocument, is_warmed
from userdata.agent.machine import files, log
from userdata.agent.machine.clock import Clock

VERSION: Final = 1
MIN_DRAIN_SECONDS: Final = 10.0
"""Time that service workers have to end at the least: a SIGTERM at the deadline is none."""


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True)
class Notice:
    """A pending termination of the instance. All times are epoch seconds."""

    kind: str
    """``spot`` or ``lifecycle`` (scale-in, replacement, or return to the warm pool)."""
    action: str
    """``terminate``, ``stop`` (also: into the warm pool) or ``hibernate``."""
    announced: str
    """The source's text, verbatim; together with ``kind`` it identifies a notice."""
    deadline: float
    """When the instance terminates, by this machine's clock."""
    drain_at: float
    """When service workers stop taking work; training stops at once."""
    received_at: Annotated[float, Stored("seen")]
    """When the agent read it, by this machine's clock."""
    uptime: float | None = None
    """When the agent read it, in seconds since the boot: by these a clock that steps moves no deadline."""

    def _age_seconds(self, clock: Clock) -> float:
        return clock.wall() - self.received_at if self.uptime is None else clock.monotonic() - self.uptime

    def seconds_left(self, clock: Clock) -> float:
        """Return the seconds until the deadline, negative after it."""
        return self.deadline - self.received_at - self._age_seconds(clock)

    def is_drain_due(self, clock: Clock) -> bool:
        """Return whether service workers have to end; none is started any more."""
        return self._age_seconds(clock) >= self.drain_at - self.received_at

    @property
    def identity(self) -> tuple[str, str]:
        """Key that is equal for two readings of the same notice."""
        return self.kind, self.announced


def from_spot_action(response: MetadataDocument, wall: float, drain_seconds: float) -> Notice | None:
    """Parse ``spot/instance-action``: ``{"action": "terminate", "time": "2017-09-18T08:22:00Z"}``.

    The remaining time is measured by the metadata service's clock (its Date header), so a wrong local clock
    does not matter. Without the header, a remaining time outside AWS's two minutes means that the local clock
    is wrong: then, and for a malformed document, the deadline is two minutes from now.
    """
    try:
        document = json.loads(response.text)
        action, announced = str(document["action"]), str(document["time"])
        remaining = datetime.fromisoformat(announced).timestamp() - (
            wall if response.date is None else response.date
        )
    except (ValueError, KeyError, TypeError):
        log.error("cannot parse instance-action; assuming two minutes", document=response.text[:200])
        action, announced, remaining = "terminate", response.text[:200], NOTICE_SECONDS
    if response.date is None and not 0 <= remaining <= NOTICE_SECONDS:
        remaining = NOTICE_SECONDS
    remaining = min(max(remaining, 0.0), NOTICE_SECONDS)
    deadline = wall + remaining
    drain_at = deadline - max(drain_seconds, MIN_DRAIN_SECONDS)
    return Notice("spot", action, announced, deadline, max(wall, drain_at), wall)


def from_lifecycle(state: str, wall: float, hook_seconds: float) -> Notice:
    """Return the notice for a target lifecycle state that ends the work; the drain starts at once.

    The deadline is the timeout of the terminating hook, also on return to the warm pool. Source: Auto Scaling
    guide, "Use lifecycle hooks with a warm pool".
    """
    action = "stop" if is_warmed(state) else "terminate"
    return Notice("lifecycle", action, state, wall + hook_seconds, wall, wall)


def write(directory: Path, notice: Notice) -> None:
    """Replace the notice file atomically."""
    files.write_json(directory / NOTICE_FILE, {"version": VERSION, **codec.dump(notice)})


def is_drain_due(directory: Path, clock: Clock) -> bool:
    """Return whether there is a notice in ``directory`` and service workers have to end."""
    return (current := read(directory)) is not None and current.is_drain_due(clock)


def read(directory: Path) -> Notice | None:
    """Return the notice in ``directory``; None if there is none or it is malformed."""
    if (body := files.read_json(directory / NOTICE_FILE)) is None:
        return None
    try:
        return codec.parse(Notice, body)
    except ContractError:
        return None
