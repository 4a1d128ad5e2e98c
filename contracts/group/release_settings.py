"""A service's ``release`` parameter: the program writes it, the health checker reads it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from contracts import codec
from contracts.group.release import WorkerRelease
from contracts.limits import AtLeast
from contracts.stored import FieldMark, stored

MOST_BYTES = 4096
"""Of a parameter of the standard tier (Systems Manager, "Parameter tiers")."""


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class Wanted:
    """The release that the stack file asks for; a slot of the target has ``per_slot`` workers."""

    release: Annotated[WorkerRelease, FieldMark.INLINE]
    per_slot: Annotated[int, AtLeast(1), FieldMark.REQUIRED] = 1


def dumps(wanted: Wanted) -> str:
    """Return the parameter's text."""
    return json.dumps(codec.dump(wanted), sort_keys=True, separators=(",", ":"))


def parse(text: str) -> Wanted:
    """Read the parameter's text; raise `ContractError` for what the program does not write."""
    return codec.parse_text(Wanted, text)
