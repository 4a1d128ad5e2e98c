"""What a roll-out asks of the controller: a few slots more, and patience with whom it starts anew.

The health checker writes it (the group's parameter ``rolling``), the controller alone sets capacities.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Final

from contracts import codec
from contracts.limits import WholeNumber
from contracts.stored import FieldMark, stored

NONE: Final = "{}"


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class Rolling:
    """So many slots above the target, and the instances whose workers start anew; said ``at`` (epoch s)."""

    at: int
    surge: Annotated[WholeNumber, FieldMark.REQUIRED] = 0
    anew: Annotated[tuple[str, ...], FieldMark.REQUIRED] = ()


def dump(rolling: Rolling | None) -> str:
    """Return the parameter's text."""
    if rolling is None:
        return NONE
    return json.dumps(codec.dump(rolling), separators=(",", ":"))


def parse(text: str) -> Rolling | None:
    """Read the parameter's text, None while nothing rolls; raise `ContractError` for what is none."""
    raw = codec.decode_object(text)
    return codec.parse(Rolling, raw) if raw else None
