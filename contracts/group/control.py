"""A group's ``control`` parameter: people write it by hand, the controller reads it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from contracts import codec
from contracts.limits import Above, WholeNumber
from contracts.stored import ContractError

INITIAL: Final = '{"mode": "automatic"}'
"""What the program writes where there is none yet."""


class Mode(StrEnum):
    """What people allow the controller to do with a group."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"
    DRY_RUN = "dry-run"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class Control:
    """What people set by hand: the mode, in ``MANUAL`` the on-demand slots, and another budget in dollars."""

    mode: Mode = Mode.AUTOMATIC
    on_demand: WholeNumber | None = None
    budget: Annotated[float, Above(0)] | None = None


def parse(text: str) -> Control:
    """Read the parameter's text; raise `ContractError` that names the key, the value and what is allowed."""
    control = codec.parse(Control, codec.decode_object(text))
    if control.mode is Mode.MANUAL and control.on_demand is None:
        raise ContractError("None with mode manual; allowed: 0 or more", "onDemand")
    return control
