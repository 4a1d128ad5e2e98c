"""What the controller did, from its log to words: in a rehearsal and of a deployed stack alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DecisionLine:
    """One decision of the controller at ``at`` (epoch seconds); no ``actions``: all was as it should be."""

    at: float
    group: str
    actions: tuple[str, ...]
    reason: str


def told(action: dict[str, Any]) -> str:
    """Return one action, as the controller logs it, in a few words."""
    match action:
        case {"action": "SetDesired", "side": side, "capacity": capacity, **more}:
            where = f", in {more['zone']}" if more.get("zone") else ""
            return f"{side}: desired capacity {capacity}{where}"
        case {"action": "Release", "side": side, "instance_ids": ids}:
            return f"{side}: release {len(ids)}"
        case {"action": "Alarm", "kind": kind}:
            return f"alarm: {kind}"
        case _:
            return str(action.get("action"))
