"""A sentence about AWS that this code leans on, and how it would be seen to be wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpu_spot.aws_check.lab import Lab


@dataclass(frozen=True, slots=True)
class Assumption:
    """One sentence and its trial.

    Attributes:
        name: short, unique, with hyphens.
        says: the sentence.
        source: where AWS says so.
        leans: the module that needs it to be so.
        falsified_by: what would be seen if it were wrong.
        steps: tries it; returns what was seen, raises ``Falsified``.
        instances: how many the trial has at most at a time, for the estimate of its cost.
        unplayable: why moto cannot play it, empty where it can.
    """

    name: str
    says: str
    source: str
    leans: str
    falsified_by: str
    steps: Callable[[Lab], str]
    instances: int = 0
    unplayable: str = ""


def assumes(
    source: str, leans: str, falsified_by: str, *, instances: int = 0, unplayable: str = ""
) -> Callable[[Callable[[Lab], str]], Assumption]:
    """Make an assumption of the function that tries it: its name, and as the sentence its docstring."""

    def made(steps: Callable[[Lab], str]) -> Assumption:
        name, says = steps.__name__.replace("_", "-"), " ".join((steps.__doc__ or "").split())
        return Assumption(name, says, source, leans, falsified_by, steps, instances, unplayable)

    return made
