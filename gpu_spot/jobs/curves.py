"""A picture of a study's trials: the metric by step, the best one marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gpu_spot.jobs.reader import JobError
from gpu_spot.jobs.study import StudyReport, StudyTrial
from market.plots.svg import OTHER_COLOUR, OURS, Picture

_WIDTH, _HEIGHT = 720, 400
_MARGIN_LEFT, _MARGIN_RIGHT, _TOP, _BOTTOM = 70, 24, 40, 48
_VALUES: Final = 4
"""Number of values at the axis of the metric."""


def check(path: Path) -> None:
    """Raise ``ValueError`` unless the picture can be written to a file of this name."""
    if path.suffix != ".svg":
        raise ValueError(f"--curves is {path}, allowed: a file that ends in .svg")


def svg(report: StudyReport) -> str:
    """Return the trials' values at the steps at which they are compared, and the last one, as SVG.

    The axis of steps is logarithmic, as the rungs are.

    Raises:
        JobError: no trial has a value that is a number.
    """
    curves = {trial.number: _points(report, trial) for trial in report.trials}
    points = [point for curve in curves.values() for point in curve]
    if not points:
        raise JobError(f"study {report.name!r} has no values yet, allowed: a study with a reported value")
    steps, values = zip(*points, strict=True)
    low, high = min(values), max(values)
    margin = (high - low) / 20 or 1.0
    x = _LinearAxis(math.log(min(steps)), math.log(max(steps)), _MARGIN_LEFT, _WIDTH - _MARGIN_RIGHT)
    y = _LinearAxis(low - margin, high + margin, _HEIGHT - _BOTTOM, _TOP)
    picture = Picture(_WIDTH, _HEIGHT)
    best = next((trial.number for trial in report.trials if trial.outcome.state == "complete"), None)
    title = f"study {report.name}: {report.study.metric} by step"
    picture.text(_MARGIN_LEFT, 20, title, font_size=14)
    for step in sorted(set(steps)):
        at = x.at(math.log(step))
        picture.path(f"M{at:.1f} {_TOP}V{_HEIGHT - _BOTTOM}", "#eee")
        picture.text(at, _HEIGHT - _BOTTOM + 15, str(step), "middle")
    for number in range(_VALUES + 1):
        value = low + (high - low) * number / _VALUES
        picture.path(f"M{_MARGIN_LEFT} {y.at(value):.1f}H{_WIDTH - _MARGIN_RIGHT}")
        picture.text(_MARGIN_LEFT - 6, y.at(value) + 4, f"{value:.4g}", "end")
    for trial in reversed(report.trials):  # the best above the others
        is_best = trial.number == best
        drawn = [(x.at(math.log(step)), y.at(value)) for step, value in curves[trial.number]]
        if is_best:
            picture.curve(drawn)
        elif drawn:
            picture.path("M" + "L".join(f"{across:.1f} {down:.1f}" for across, down in drawn), OTHER_COLOUR)
        for (across, down), (step, value) in zip(drawn, curves[trial.number], strict=True):
            label = f"trial {trial.number}, {trial.outcome.state}, step {step}: {value:.6g}"
            picture.dot(across, down, OURS if is_best else OTHER_COLOUR, label, radius=3)
    if best is not None:
        picture.text(_WIDTH - _MARGIN_RIGHT, 20, f"best: trial {best}", "end", fill=OURS)
    return str(picture)


def _points(report: StudyReport, trial: StudyTrial) -> Sequence[tuple[int, float]]:
    """Return step and value where a trial was compared, and of its last value."""
    outcome, prune = trial.outcome, report.study.prune
    by_step = {prune.step_of(rung): value for rung, value in enumerate(outcome.rungs)} if prune else {}
    if outcome.value is not None:
        by_step[outcome.step] = outcome.value
    return sorted((step, value) for step, value in by_step.items() if step > 0 and math.isfinite(value))


class _LinearAxis:
    """A linear axis from one end of a line to the other; a single value is in its middle."""

    def __init__(self, low: float, high: float, begin: float, end: float) -> None:
        self._low, self._span, self._begin, self._length = low, high - low, begin, end - begin

    def at(self, value: float) -> float:
        share = (value - self._low) / self._span if self._span else 0.5
        return self._begin + share * self._length
