"""Requests of a rollout to the controller: surge slots, and tolerance for restarting workers.

The health checker writes them to the group's parameter ``rolling``; only the controller sets capacities.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from contracts import codec
from contracts.limits import WholeNumber
from contracts.stored import stored


@stored(is_open=True)
@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """Surge slots above the target, and instances whose workers restart; ``requested_at``: epoch seconds."""

    requested_at: int = 0
    surge: WholeNumber = 0
    restarting: tuple[str, ...] = ()


NO_REQUEST: Final = RolloutRequest()
"""The request without a rollout, stored as ``{}``."""


def dump(request: RolloutRequest) -> str:
    """Serialize the parameter's value."""
    return json.dumps(codec.dump(request), separators=(",", ":"))


def parse(text: str) -> RolloutRequest:
    """Parse the parameter's value; raise `ContractError` if it is invalid."""
    return codec.parse_text(RolloutRequest, text)
