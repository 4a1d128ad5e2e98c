"""The parameters of a study's next trial, by Optuna's TPE sampler.

A function of its question alone: the trials to take into account and the seed are in it. So Optuna needs no
storage, and another machine that asks again gets the same answer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState


def answer_file(question: Path, answer_path: Path) -> None:
    """Answer the question in a JSON file (``userdata.agent.study.sampling.request``) with another."""
    parameters = suggest(json.loads(question.read_text()))
    answer_path.write_text(json.dumps(parameters) + "\n")


def suggest(question: Mapping[str, Any]) -> dict[str, float]:
    """Return the value of each parameter; of one with a list of values, its position in the list."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = {name: _distribution(values) for name, values in question["space"].items()}
    sampler = optuna.samplers.TPESampler(seed=question["seed"])
    study = optuna.create_study(direction=question["goal"], sampler=sampler)
    for trial in question["trials"]:
        study.add_trial(_trial(trial, space))
    parameters: dict[str, float] = study.ask(space).params
    return parameters


def _distribution(values: Mapping[str, Any]) -> BaseDistribution:
    if values.get("is_category"):
        return CategoricalDistribution(range(values["count"]))
    if "count" in values:
        return IntDistribution(0, values["count"] - 1)
    return FloatDistribution(values["min"], values["max"], log=values["log"])


def _trial(trial: Mapping[str, Any], space: Mapping[str, BaseDistribution]) -> FrozenTrial:
    parameters = {
        name: value if isinstance(space[name], FloatDistribution) else int(value)
        for name, value in trial["parameters"].items()
    }
    value = float(trial["value"])
    rungs = {int(step): float(text) for step, text in trial["rungs"]}
    is_complete = trial["is_complete"] and not math.isnan(value)  # Optuna fails a trial whose value is NaN
    if not is_complete and not rungs:
        rungs = {0: value}
    return optuna.trial.create_trial(
        state=TrialState.COMPLETE if is_complete else TrialState.PRUNED,
        value=value if is_complete else None,
        params=parameters,
        distributions=dict(space),
        intermediate_values=rungs,
    )
