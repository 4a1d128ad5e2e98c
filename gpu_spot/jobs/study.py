"""The trials of a study, best first, with their values and what they cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from contracts import codec
from contracts.agent.study import Study
from contracts.stored import ContractError
from gpu_spot.jobs.reader import JobError, JobReader
from gpu_spot.jobs.report import timeline_of
from gpu_spot.jobs.snapshot import JobSnapshot, experiment_of, experiment_run
from userdata.agent.cost import page
from userdata.agent.cost.prices import Charge
from userdata.agent.study.history import TrialOutcome, outcomes
from userdata.agent.study.leases import trial_rows

_BARS: Final = "▁▂▃▄▅▆▇█"
_STYLES: Final = {
    "waiting": "dim",
    "running": "green",
    "complete": "bold green",
    "pruned": "",
    "failed": "bold red",
}


@dataclass(frozen=True, slots=True)
class StudyTrial:
    """A trial: its outcome, its parameters, and the charge of its instances' time."""

    number: int
    name: str
    outcome: TrialOutcome
    parameters: dict[str, str]
    charge: Charge


@dataclass(frozen=True, slots=True)
class StudyReport:
    """A study and its trials, best first; ``spent`` is the sum of their charges."""

    name: str
    study: Study
    trials: tuple[StudyTrial, ...]

    @property
    def counts(self) -> Counter[str]:
        """Number of trials by state."""
        return Counter(trial.outcome.state for trial in self.trials)


def read_study(reader: JobReader, name: str) -> StudyReport:
    """Return the study of a job.

    Calls: as ``JobReader.read``, and one for each hundred trials, two for each hundred of their attempts and
    one for each thousand prices.

    Raises:
        JobError: the job does not exist, is no study, or no instance has begun it yet.
    """
    snapshot = reader.read(name)
    if snapshot.group:
        raise JobError(f"job {name!r} is a trial; use its study's name, {snapshot.group!r}")
    if not snapshot.row.study:
        raise JobError(
            f"job {name!r} has no trials, allowed: a job with training[].study that an instance has begun"
        )
    try:
        study = codec.parse_text(Study, snapshot.row.study)
    except ContractError as error:
        raise JobError(f"job {name!r}: study of another version of gpu-spot: {error}") from None
    names = [*snapshot.row.experiments]
    items = [snapshot.experiments[trial] for trial in names]
    results = trial_rows(items, experiment_run(snapshot.run))
    charges = _charges(reader, snapshot, names)
    trials = [
        StudyTrial(number, names[number], outcome, dict(results[number].result.parameters), charges[number])
        for number, outcome in enumerate(outcomes(study, results))
    ]
    return StudyReport(name, study, tuple(sorted(trials, key=lambda trial: _rank(study, trial))))


def _charges(reader: JobReader, snapshot: JobSnapshot, names: Sequence[str]) -> list[Charge]:
    attempts = reader.attempts(snapshot.experiments)
    trials = [replace(experiment_of(snapshot, name), attempts=attempts.get(name, ())) for name in names]
    every = tuple(attempt for trial in trials for attempt in trial.attempts)
    prices = reader.prices(replace(snapshot, run=experiment_run(snapshot.run), attempts=every))
    return [timeline_of(trial, prices).charge for trial in trials]


def _rank(study: Study, trial: StudyTrial) -> tuple[int, float, float, int]:
    """Order complete trials by value; then pruned and running ones, those that came further first."""
    outcome, value = trial.outcome, trial.outcome.value
    is_bad = value is None or math.isnan(value)
    worth = math.inf if value is None or math.isnan(value) else value
    if study.goal == "maximize" and not is_bad:
        worth = -worth
    order = {"complete": 0, "pruned": 1, "running": 1, "failed": 2, "waiting": 3}[outcome.state]
    return order, float(-outcome.step if order else 0), worth, trial.number


def study_table(report: StudyReport) -> RenderableType:
    """Return the table of a study's trials for the terminal."""
    study = report.study
    total = sum((trial.charge for trial in report.trials), start=Charge())
    counts = ", ".join(f"{count} {state}" for state, count in sorted(report.counts.items()))
    head = f"study {report.name}: {counts}; {page.dollars(total)}"
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    parameters = sorted({name for trial in report.trials for name in trial.parameters})
    for column in ("trial", "state", study.metric, "step", "cost", "rungs", *parameters):
        right = column in (study.metric, "step", "cost")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    finite = [value for trial in report.trials for value in trial.outcome.rungs if math.isfinite(value)]
    for trial in report.trials:
        outcome = trial.outcome
        table.add_row(
            str(trial.number),
            Text(outcome.state, style=_STYLES[outcome.state]),
            "–" if outcome.value is None else f"{outcome.value:.6g}",
            str(outcome.step) if outcome.value is not None else "–",
            page.dollars(trial.charge) if trial.charge.seconds else "–",
            _curve(outcome.rungs, finite),
            *(Text(trial.parameters.get(name, "–")) for name in parameters),
        )
    note = f"cost: instances at public prices; {study.goal} {study.metric}, best first"
    return Group(Text(head, style="bold"), table, Text(note, style="dim"))


def to_json(report: StudyReport) -> dict[str, Any]:
    """Return a study as JSON values; a value that is not a number is null, money is in US dollars."""
    return {
        "job": report.name,
        "metric": report.study.metric,
        "goal": report.study.goal,
        "trials": [
            {
                "trial": trial.number,
                "job": trial.name,
                "state": trial.outcome.state,
                "value": _number(trial.outcome.value),
                "step": trial.outcome.step,
                "rungs": [_number(value) for value in trial.outcome.rungs],
                "parameters": trial.parameters,
                "estimated_cost_usd": round(trial.charge.dollars, 4),
                "unpriced_seconds": trial.charge.unpriced_seconds,
            }
            for trial in report.trials
        ],
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _curve(values: Sequence[float], every: Sequence[float]) -> str:
    """Return a bar for each value, between the lowest and the highest of all trials."""
    low, high = min(every, default=0.0), max(every, default=0.0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] if math.isfinite(value) else "·" for value in values)
