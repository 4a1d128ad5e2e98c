"""A group's ``control`` parameter, written by operators and read by the controller."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from contracts import codec
from contracts.limits import Above, WholeNumber
from contracts.stored import ContractError

INITIAL: Final = '{"mode": "automatic"}'
"""Initial value of the parameter."""


class Mode(StrEnum):
    """Mode of the controller for a group: the changes that it may make."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"
    DRY_RUN = "dry-run"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class Control:
    """Manual settings: mode, On-Demand slots for ``MANUAL``, and a budget of a job's run.

    ``budget`` overrides the stack file's.
    """

    mode: Mode = Mode.AUTOMATIC
    on_demand: WholeNumber | None = None
    budget: Annotated[float, Above(0)] | None = None


def parse(text: str) -> Control:
    """Parse the parameter's value; raise `ContractError` with the key, the value and what is allowed."""
    control = codec.parse(Control, codec.decode_object(text))
    if control.mode is Mode.MANUAL and control.on_demand is None:
        raise ContractError("must be 0 or more with mode manual, not None", "onDemand")
    return control
