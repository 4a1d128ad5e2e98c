"""Try assumptions, one after the other, and leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gpu_spot.aws_check.assumption import Assumption
from gpu_spot.aws_check.cleaning import clean_up
from gpu_spot.aws_check.lab import Falsified, Lab

Verdict: TypeAlias = Literal["held", "falsified", "not tried", "not playable here"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an assumption. ``seen`` is what the trial saw, or why there was none."""

    assumption: Assumption
    verdict: Verdict
    seen: str


def tried(
    lab: Lab,
    assumptions: Iterable[Assumption],
    *,
    on_moto: bool,
    heard: Callable[[Outcome], None],
) -> tuple[list[Outcome], list[str]]:
    """Try assumptions and delete what they made, also where the run is broken off.

    Args:
        lab: of the run.
        assumptions: in the order in which they are tried.
        on_moto: whether assumptions that moto cannot play are passed over.
        heard: told each outcome as it comes.

    Returns:
        The outcomes, and what could not be deleted.
    """
    outcomes: list[Outcome] = []
    left: list[str] = []
    try:
        for assumption in assumptions:
            outcome = _outcome(lab, assumption, on_moto=on_moto)
            outcomes.append(outcome)
            heard(outcome)
    finally:
        left = clean_up(lab.clients, lab.clock, lab.run)
    return outcomes, left


def _outcome(lab: Lab, assumption: Assumption, *, on_moto: bool) -> Outcome:
    if on_moto and assumption.unplayable:
        return Outcome(assumption, "not playable here", assumption.unplayable)
    try:
        return Outcome(assumption, "held", assumption.steps(lab))
    except Falsified as seen:
        return Outcome(assumption, "falsified", str(seen))
    except Exception as error:
        # A step that it is not about: permissions, quotas, another shape of answer. The others go on.
        return Outcome(assumption, "not tried", " ".join(f"{type(error).__name__}: {error}".split()))
