"""The controller's decisions, from its log to text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DecisionLine:
    """A decision of the controller at ``at`` (epoch seconds). Without ``actions`` nothing was changed."""

    at: float
    group: str
    actions: tuple[str, ...]
    reason: str


def describe_action(action: dict[str, Any]) -> str:
    """Return a logged action of the controller in a few words."""
    match action:
        case {"action": "SetDesired", "side": side, "capacity": capacity, **more}:
            where = f", in {more['zone']}" if more.get("zone") else ""
            return f"{side}: desired capacity {capacity}{where}"
        case {"action": "Release", "side": side, "instance_ids": ids}:
            return f"{side}: terminate {len(ids)}"
        case {"action": "Alarm", "kind": kind}:
            return f"alarm: {kind}"
        case _:
            return str(action.get("action"))
