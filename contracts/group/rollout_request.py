"""Requests of a rollout to the controller: surge slots, and tolerance for restarting workers.

The health checker writes them to the group's parameter ``rolling``; only the controller sets capacities.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Final

from contracts import codec
from contracts.limits import WholeNumber
from contracts.stored import FieldMark, Stored, stored

NONE: Final = "{}"


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """Surge slots above the target, and instances whose workers restart; ``requested_at``: epoch seconds."""

    requested_at: Annotated[int, Stored("at")]
    surge: Annotated[WholeNumber, FieldMark.REQUIRED] = 0
    restarting: Annotated[tuple[str, ...], FieldMark.REQUIRED, Stored("anew")] = ()


def dump(request: RolloutRequest | None) -> str:
    """Serialize the parameter's value."""
    if request is None:
        return NONE
    return json.dumps(codec.dump(request), separators=(",", ":"))


def parse(text: str) -> RolloutRequest | None:
    """Parse the parameter's value, ``None`` without a rollout; raise `ContractError` if it is invalid."""
    raw = codec.decode_object(text)
    return codec.parse(RolloutRequest, raw) if raw else None
