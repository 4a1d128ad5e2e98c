"""The notice: what it says, how it is read from the metadata, and the file by which the work hears of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from contracts import codec
from contracts.agent.names import NOTICE_FILE
from contracts.stored import ContractError, stored
from userdata.agent.aws.imds import Answer, is_warmed
from userdata.agent.machine import files, log

SPOT_NOTICE_SECONDS: Final = 120.0
VERSION: Final = 1


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True)
class Notice:
    """The instance will be taken. All times are epoch seconds."""

    kind: str
    """``spot`` or ``lifecycle`` (the group scales in or replaces the instance; ``stop``: into its pool)."""
    action: str
    """``terminate``, ``stop`` or ``hibernate``."""
    announced: str
    """What the source said, word for word: two notices are the same if kind and this are."""
    deadline: float
    """When the instance is taken, by this machine's clock."""
    drain_at: float
    """When service workers take no more work; training stops at once."""
    seen: float
    """When we saw it, by this machine's clock."""

    @property
    def identity(self) -> tuple[str, str]:
        """What makes two sightings the same notice."""
        return self.kind, self.announced


def from_spot_action(answer: Answer, wall: float, drain_seconds: float) -> Notice | None:
    """Read ``spot/instance-action``: ``{"action": "terminate", "time": "2017-09-18T08:22:00Z"}``.

    What is left is counted by the service's own clock (its Date header) and put onto ours, so that a wrong
    local clock moves nothing. Without the header a remainder beyond AWS's two minutes proves our clock
    wrong; the two minutes are then counted from now. A document that cannot be read is a notice, too: two
    minutes from now.
    """
    try:
        document = json.loads(answer.text)
        action, announced = str(document["action"]), str(document["time"])
        left = datetime.fromisoformat(announced).timestamp() - (wall if answer.date is None else answer.date)
    except (ValueError, KeyError, TypeError):
        log.error("instance-action cannot be read; assuming two minutes", document=answer.text[:200])
        action, announced, left = "terminate", answer.text[:200], SPOT_NOTICE_SECONDS
    if answer.date is None and not 0 <= left <= SPOT_NOTICE_SECONDS:
        left = SPOT_NOTICE_SECONDS
    left = min(max(left, 0.0), SPOT_NOTICE_SECONDS)
    deadline = wall + left
    return Notice("spot", action, announced, deadline, max(wall, deadline - drain_seconds), wall)


def from_lifecycle(state: str, wall: float, hook_seconds: float) -> Notice:
    """Return the notice of a target lifecycle state that ends our work.

    It gives us as long as the terminating hook waits, also on the way back into the warm pool (Auto Scaling
    guide, "Use lifecycle hooks with a warm pool"). Others serve already: the drain begins at once.
    """
    action = "stop" if is_warmed(state) else "terminate"
    return Notice("lifecycle", action, state, wall + hook_seconds, wall, wall)


def write(directory: Path, notice: Notice) -> None:
    """Replace the notice file; readers see the old one or the new one, whole."""
    files.write_json(directory / NOTICE_FILE, {"version": VERSION, **codec.dump(notice)})


def read(directory: Path) -> Notice | None:
    """Return the notice in ``directory``; None when there is none that can be read."""
    body = files.read_json(directory / NOTICE_FILE)
    if body is None:
        return None
    try:
        return codec.parse(Notice, body)
    except ContractError:
        return None
