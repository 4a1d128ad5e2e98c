"""The history of a study: a pure function of what its trials have reported, in the order of their numbers.

A trial is compared with the trials before it that its number allows (``Study.known_before``), never with all
that have reported so far. If one of these has not reached a rung yet, the decision there is open, and the
trial continues meanwhile. Values that it reports in this time do not count if it turns out to be pruned.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from contracts.agent.study import Goal, Pruning, Study, TrialResult

TrialState: TypeAlias = Literal["waiting", "running", "complete", "pruned", "failed"]


@dataclass(frozen=True, slots=True)
class TrialRow:
    """A trial as stored: ``state`` is that of its item in this run (``contracts.jobs.item``)."""

    result: TrialResult
    state: str = ""


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """What became of a trial. ``rungs`` are the values that count, up to the rung that pruned it, if any.

    ``value`` and ``step``: the last value that counts; None without any. ``is_open``: it is not known yet
    whether the last of ``rungs`` prunes it.
    """

    state: TrialState
    rungs: tuple[float, ...] = ()
    value: float | None = None
    step: int = 0
    is_open: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether nothing can change it any more."""
        return self.state in ("complete", "pruned", "failed")


@dataclass(frozen=True, slots=True)
class VisibleTrial:
    """An earlier trial as the sampler sees it: complete, or cut at its last visible rung."""

    number: int
    is_complete: bool
    rungs: tuple[float, ...]
    value: float


def outcomes(study: Study, rows: Sequence[TrialRow]) -> list[TrialOutcome]:
    """Return the outcomes of trials 0 to ``len(rows) - 1``."""
    compared = _ComparedTrials()
    result: list[TrialOutcome] = []
    for number, row in enumerate(rows):
        while compared.trials < study.known_before(number):
            compared.add(result[compared.trials])
        result.append(_outcome(study, row, compared))
    return result


def seen_by(study: Study, history: Sequence[TrialOutcome], number: int) -> list[VisibleTrial] | None:
    """Return the earlier trials that the sampler of trial ``number`` sees; None while one is missing.

    A trial that takes long must not delay all that follow it. So a trial sees rung k of another that is
    ``concurrency * factor**k`` trials before it: about as many as run while a trial comes to that rung.
    """
    visible = []
    for earlier in range(study.known_before(number)):
        outcome, rungs = history[earlier], _visible_rungs(study, number - earlier)
        if rungs is not None and len(outcome.rungs) >= rungs:
            cut = outcome.rungs[:rungs]
            visible.append(VisibleTrial(earlier, is_complete=False, rungs=cut, value=cut[-1]))
        elif not outcome.has_ended:
            return None
        elif outcome.value is not None and outcome.state != "failed":
            visible.append(VisibleTrial(earlier, outcome.state == "complete", outcome.rungs, outcome.value))
    return visible


def is_pruned(prune: Pruning, goal: Goal, values: Sequence[float], competing: Sequence[float]) -> bool:
    """Return whether a trial ends at a rung.

    Args:
        prune: the rule.
        goal: which of two values is better.
        values: the trial's values at its rungs, this one last.
        competing: the sorted values of other trials at this rung.
    """
    if prune.rule == "median":
        return _is_below_median(prune, goal, values, competing)
    if math.isnan(values[-1]):
        return True
    # Asynchronous successive halving (Li et al. 2020), with Optuna's rule for the first trials of a rung:
    # until there are `factor` of them, a trial continues if it is the best.
    ranked = [value for value in competing if not math.isnan(value)]
    bisect.insort(ranked, values[-1])
    last = max(0, len(ranked) // prune.factor - 1)
    if goal == "maximize":
        return values[-1] < ranked[-1 - last]
    return values[-1] > ranked[last]


def _is_below_median(prune: Pruning, goal: Goal, values: Sequence[float], competing: Sequence[float]) -> bool:
    """Compare the best value so far with the others' median at this rung, as Optuna's ``MedianPruner``."""
    own_numbers = [value for value in values if not math.isnan(value)]
    if not own_numbers:
        return True
    numbers = [value for value in competing if not math.isnan(value)]
    if len(competing) < prune.min_trials or not numbers:
        return False
    median = statistics.median(numbers)
    return max(own_numbers) < median if goal == "maximize" else min(own_numbers) > median


class _ComparedTrials:
    """The trials that a trial may be compared with, in the order of their numbers."""

    def __init__(self) -> None:
        self.trials = 0
        self._values: list[list[float]] = []
        self._complete_rungs = math.inf
        """Rungs at which each of these trials has a value or has ended before."""

    def add(self, outcome: TrialOutcome) -> None:
        self.trials += 1
        for rung, value in enumerate(outcome.rungs):
            if rung == len(self._values):
                self._values.append([])
            bisect.insort(self._values[rung], value, key=_nan_last)
        if not outcome.has_ended:
            self._complete_rungs = min(self._complete_rungs, len(outcome.rungs))

    def at(self, rung: int) -> Sequence[float] | None:
        """Return all values at a rung; None while one is missing."""
        if rung >= self._complete_rungs:
            return None
        return self._values[rung] if rung < len(self._values) else ()


def _outcome(study: Study, row: TrialRow, compared: _ComparedTrials) -> TrialOutcome:
    prune, values = study.prune, tuple(map(float, row.result.rungs))
    for rung in range(len(values) if prune is not None else 0):
        assert prune is not None
        counted, competing = values[: rung + 1], compared.at(rung)
        step, value = prune.step_of(rung), values[rung]
        if competing is None:
            return TrialOutcome("running", counted, value, step, is_open=True)
        if is_pruned(prune, study.goal, counted, competing):
            return TrialOutcome("pruned", counted, value, step)
    state: TrialState = "waiting"
    if row.state:
        state = {"done": "complete", "failed": "failed"}.get(row.state, "running")  # type: ignore[assignment]
    newest = float(row.result.value) if row.result.value else None
    return TrialOutcome(state, values, newest, row.result.step)


def _visible_rungs(study: Study, distance: int) -> int | None:
    """Return how many rungs are visible at a distance in trials; None without rungs: the end is visible."""
    if study.prune is None:
        return None
    rungs = 0
    while study.concurrency * study.prune.factor**rungs <= distance:
        rungs += 1
    return rungs


def _nan_last(value: float) -> tuple[bool, float]:
    return (True, 0.0) if math.isnan(value) else (False, value)
