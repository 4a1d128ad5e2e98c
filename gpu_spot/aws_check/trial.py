"""Runs the tests of assumptions one after the other and deletes their resources."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gpu_spot.aws_check.assumption import Assumption
from gpu_spot.aws_check.aws_test_bed import AwsTestBed, Falsified
from gpu_spot.aws_check.cleaning import clean_up, delete_compute

Verdict: TypeAlias = Literal["held", "falsified", "not tried", "not playable here"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an assumption. ``observation`` may also be the reason why the test did not run."""

    assumption: Assumption
    verdict: Verdict
    observation: str


def run_assumptions(
    test_bed: AwsTestBed,
    assumptions: Iterable[Assumption],
    *,
    on_moto: bool,
    on_outcome: Callable[[Outcome], None],
) -> tuple[list[Outcome], list[str]]:
    """Run the tests of assumptions and delete their resources, also after an interruption.

    Args:
        test_bed: of the run.
        assumptions: in order of execution.
        on_moto: whether to skip assumptions that moto cannot run.
        on_outcome: receives each outcome as it completes.

    Returns:
        The outcomes, and the resources that could not be deleted.
    """
    outcomes: list[Outcome] = []
    leftovers: list[str] = []
    try:
        for assumption in assumptions:
            outcome = _run_one(test_bed, assumption, on_moto=on_moto)
            outcomes.append(outcome)
            on_outcome(outcome)
            if assumption.instances:
                # Instances of a test run no longer than it; what later tests share stays to the end.
                delete_compute(test_bed.clients, test_bed.run)
    finally:
        leftovers = clean_up(test_bed.clients, test_bed.clock, test_bed.run)
    return outcomes, leftovers


def _run_one(test_bed: AwsTestBed, assumption: Assumption, *, on_moto: bool) -> Outcome:
    if on_moto and assumption.unsupported_reason:
        return Outcome(assumption, "not playable here", assumption.unsupported_reason)
    try:
        return Outcome(assumption, "held", assumption.run(test_bed))
    except Falsified as falsified:
        return Outcome(assumption, "falsified", str(falsified))
    except Exception as error:
        # Unrelated failure, such as permissions, quotas or an unexpected response: continue with the others.
        return Outcome(assumption, "not tried", " ".join(f"{type(error).__name__}: {error}".split()))
