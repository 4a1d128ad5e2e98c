"""The result of a check, and the interface of a check."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.stack import Stack

Status: TypeAlias = Literal["ok", "warning", "failure", "not known"]
"""``failure``: ``up`` fails or the stack does not work. ``not known``: the caller may not read it."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A line of the report.

    Attributes:
        subject: what was checked.
        status: the result.
        finding: the observed state.
        advice: the action to take, empty if none.
        key: the stack file's key that the result is about, empty if it is about the account.
    """

    subject: str
    status: Status
    finding: str
    advice: str = ""
    key: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the result as JSON values."""
        return {
            "subject": self.subject,
            "status": self.status,
            "found": self.finding,
            "advice": self.advice,
            "key": self.key,
        }


class Check(Protocol):
    """A module of ``checks``; read-only."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a module's constant
        """Name of the check in the report."""
        ...

    def run(self, stack: Stack, account: Account) -> Iterator[CheckResult]:
        """Yield results. An AWS error ends this check only; ``inspection`` reports it."""
        ...
