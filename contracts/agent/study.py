"""A study: trials whose parameters a sampler suggests, one after another on the instances of a group.

Stack, node agent and ``gpu-spot jobs study`` derive the same names from it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, TypeAlias

from contracts import codec, limits
from contracts.limits import Length, Within
from contracts.stored import stored

Sampler: TypeAlias = Literal["random", "grid", "tpe"]
Goal: TypeAlias = Literal["minimize", "maximize"]
PruningRule: TypeAlias = Literal["asha", "median"]

MAX_TRIALS: Final = 1000
MAX_CONCURRENCY: Final = 64
_DIGITS: Final = 4
_NUMBER_DIGITS: Final = 3
MAX_NAME_LENGTH: Final = 24 - len("-") - _DIGITS - len("-") - _NUMBER_DIGITS
"""Maximum length of a study's name, with which the names of its trials begin."""
SIGNIFICANT_DIGITS: Final = 6
"""Digits of a value from a continuous range, as the trial's variable has it."""


@dataclass(frozen=True)
class StudyParameter:
    """The values of a parameter: ``choices``, or numbers from ``min`` to ``max``.

    ``step`` is the distance of two values; 0: any number. ``log``: uniform in the logarithm.
    """

    choices: Annotated[tuple[limits.EnvironmentValue, ...], Length(0, 1000)] = ()
    min: float = 0.0
    max: float = 0.0
    step: float = 0.0
    log: bool = False

    @property
    def count(self) -> int:
        """Number of values; 0 for a continuous range."""
        if self.choices:
            return len(self.choices)
        return int((self.max - self.min) / self.step + 1e-9) + 1 if self.step else 0

    def text(self, value: float) -> str:
        """Return a value as the text of its variable: of the position in a list, or of a number itself.

        Raises:
            ValueError: the value is not one of the parameter's.
        """
        if self.count:
            if not (0 <= value < self.count and value == int(value)):
                raise ValueError(f"position {value}; allowed: 0 to {self.count - 1}")
            if self.choices:
                return self.choices[int(value)]
            value = self.min + int(value) * self.step
        elif not self.min <= value <= self.max:
            raise ValueError(f"{value}; allowed: {self.min:g} to {self.max:g}")
        return str(int(value)) if value == int(value) else f"{value:.{SIGNIFICANT_DIGITS}g}"

    def value(self, text: str) -> float:
        """Return the position or the number of a variable's text, the inverse of `text`.

        Raises:
            ValueError: the text is not one of the parameter's values.
        """
        if self.choices:
            return float(self.choices.index(text))
        number = float(text)
        if not self.step:
            return min(max(number, self.min), self.max)  # rounding may have left the range
        return float(round((number - self.min) / self.step))


@dataclass(frozen=True)
class Pruning:
    """When a trial ends early: values are compared at ``min_steps`` times powers of ``factor`` (rungs)."""

    rule: PruningRule = "asha"
    min_steps: Annotated[int, Within(1, 1_000_000_000)] = 1
    factor: Annotated[int, Within(2, 100)] = 3
    min_trials: Annotated[int, Within(1, 1000)] = 5
    """Values of other trials without which the median prunes nothing."""

    def step_of(self, rung: int) -> int:
        """Return the step of a rung."""
        return int(self.min_steps * self.factor**rung)

    def rungs_until(self, step: int) -> int:
        """Return the number of rungs at or before ``step``."""
        rungs = 0
        while self.step_of(rungs) <= step:
            rungs += 1
        return rungs


@dataclass(frozen=True)
class Study:
    """The trials of a group. ``combinations`` are the trials of a list; then there are no ``parameters``.

    Trial n is suggested and pruned by what trials 0 to n - ``concurrency`` reported, whatever else has ended
    meanwhile. So a study's history depends neither on speed nor on lost instances.
    """

    trials: Annotated[int, Within(1, MAX_TRIALS)]
    concurrency: Annotated[int, Within(1, MAX_CONCURRENCY)] = 1
    parameters: dict[limits.EnvironmentName, StudyParameter] = field(default_factory=dict)
    combinations: tuple[limits.Environment, ...] = ()
    sampler: Sampler = "random"
    metric: str = "loss"
    goal: Goal = "minimize"
    prune: Pruning | None = None
    seed: Annotated[int, Within(0, 2**31 - 1)] = 0

    def known_before(self, number: int) -> int:
        """Return how many trials, from the first on, trial ``number`` takes into account."""
        return max(0, number - self.concurrency + 1)


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class TrialResult:
    """What a trial's item stores: its parameters, and the values that it reported, in a run of ``revision``.

    ``rungs`` are the values at the rungs, ``step`` and ``value`` the newest report. Values are texts of
    Python floats, because DynamoDB has neither NaN nor infinity. Empty: none yet.
    """

    revision: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    rungs: tuple[str, ...] = ()
    step: int = 0
    value: str = ""


def trial_names(job: str, study: Study) -> list[str]:
    """Return the names of a study's trials in their order: ``<job>-<digest of the study>-<number>``.

    The digest is of what a trial's meaning depends on. More trials, or another concurrency, rename none.
    """
    digest = _digest(study, without=("trials", "concurrency"))[:_DIGITS]
    return [f"{job}-{digest}-{number:0{_NUMBER_DIGITS}d}" for number in range(study.trials)]


def run_of(revision: str, study: Study) -> str:
    """Return the id of a run of all trials; another study is another run."""
    return f"{revision}/{_digest(study)[:6]}"


def count_combinations(parameters: Mapping[str, StudyParameter]) -> int:
    """Return the number of combinations; 0 if a range is continuous."""
    return math.prod(parameter.count for parameter in parameters.values())


def _digest(study: Study, without: tuple[str, ...] = ()) -> str:
    values = {key: value for key, value in codec.dump(study).items() if key not in without}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
