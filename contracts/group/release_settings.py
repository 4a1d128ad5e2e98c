"""A service's ``release`` parameter: the program writes it, the health checker reads it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from contracts.group.config import json_object
from contracts.group.release import WorkerRelease, as_json, of_json

MOST_BYTES = 4096
"""Of a parameter of the standard tier (Systems Manager, "Parameter tiers")."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The release that the stack file asks for; a slot of the target has ``per_slot`` workers."""

    release: WorkerRelease
    per_slot: int = 1


def dumps(wanted: Wanted) -> str:
    """Return the parameter's text."""
    told = {**as_json(wanted.release), "perSlot": wanted.per_slot}
    return json.dumps(told, sort_keys=True, separators=(",", ":"))


def parse(text: str) -> Wanted:
    """Read the parameter's text; raise ``ValueError`` for what the program does not write."""
    raw = json_object(text)
    per_slot = raw.get("perSlot")
    if type(per_slot) is not int or per_slot < 1:
        raise ValueError(f"perSlot is {per_slot!r:.80}, a whole number ≥ 1 is needed")
    return Wanted(of_json(raw), per_slot)
