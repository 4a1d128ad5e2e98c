"""What a roll-out asks of the controller: a few slots more, and patience with whom it starts anew.

The health checker writes it (the group's parameter ``rolling``), the controller alone sets capacities.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from contracts.group.config import json_object

NONE: Final = "{}"


@dataclass(frozen=True, slots=True)
class Rolling:
    """So many slots above the target, and the instances whose workers start anew; said ``at`` (epoch s)."""

    at: int
    surge: int = 0
    anew: tuple[str, ...] = ()


def dump(rolling: Rolling | None) -> str:
    """Return the parameter's text."""
    if rolling is None:
        return NONE
    told = {"at": rolling.at, "surge": rolling.surge, "anew": list(rolling.anew)}
    return json.dumps(told, separators=(",", ":"))


def parse(text: str) -> Rolling | None:
    """Read the parameter's text, None while nothing rolls; raise ``ValueError`` for what is none."""
    raw = json_object(text)
    if not raw:
        return None
    try:
        found = Rolling(int(raw["at"]), int(raw["surge"]), tuple(str(one) for one in raw["anew"]))
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"no roll-out: {error!r}") from None
    if found.surge < 0:
        raise ValueError(f"surge is {found.surge}, a whole number ≥ 0 is needed")
    return found
