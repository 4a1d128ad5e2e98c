"""What a check finds, and what a check is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.stack import Stack

Status: TypeAlias = Literal["ok", "warning", "failure", "not known"]
"""``failure``: ``up`` fails, or the stack does not do its work. ``not known``: the caller may not look."""


@dataclass(frozen=True, slots=True)
class Remark:
    """One line of the answer.

    Attributes:
        subject: what was looked at.
        status: how it stands.
        found: what is there.
        advice: what to do, empty where nothing is.
    """

    subject: str
    status: Status
    found: str
    advice: str = ""


class Check(Protocol):
    """A module of ``checks``: looks at one kind of thing, and only reads."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a module's constant
        """What it checks, as the answer shows it."""
        ...

    def look(self, stack: Stack, account: Account) -> Iterator[Remark]:
        """Yield what is found. An error of AWS ends this check alone: ``inspection`` tells it."""
        ...
