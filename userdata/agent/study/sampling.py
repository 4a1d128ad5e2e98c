"""The parameters of a trial, by the study's sampler: a function of the study and of earlier trials only."""

from __future__ import annotations

import hashlib
import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from contracts.agent.study import Study, StudyParameter
from userdata.agent.study.history import VisibleTrial


def needs_history(study: Study) -> bool:
    """Return whether a trial's parameters depend on the results of earlier ones."""
    return study.sampler == "tpe"


def suggest(study: Study, number: int) -> dict[str, str]:
    """Return the parameters of trial ``number`` for a sampler that needs no history."""
    if study.combinations:
        return dict(study.combinations[number])
    names = sorted(study.parameters)
    if study.sampler == "grid":
        positions = itertools.product(*(range(study.parameters[name].count) for name in names))
        chosen = next(itertools.islice(positions, number, None))
        return {name: study.parameters[name].text(at) for name, at in zip(names, chosen, strict=True)}
    # Seeded by a text: the same numbers in each version of Python (`random.seed`, version 2).
    numbers = random.Random(f"{study.seed}/{number}")
    return {name: _draw(study.parameters[name], numbers.random()) for name in names}


def request(
    study: Study, number: int, visible: Sequence[VisibleTrial], parameters: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """Return the question to Optuna (``spot-training suggest``), as JSON.

    Parameters are positions in a list of values, or numbers of a range.

    Args:
        study: the study.
        number: the trial.
        visible: the earlier trials that count.
        parameters: those of all trials, by number.
    """
    space = {
        name: {"count": parameter.count}
        if parameter.count
        else {"min": parameter.min, "max": parameter.max, "log": parameter.log}
        for name, parameter in sorted(study.parameters.items())
    }
    for name, parameter in study.parameters.items():
        if parameter.choices:
            space[name]["is_category"] = True
    steps = [] if study.prune is None else [study.prune.step_of(rung) for rung in range(64)]
    return {
        "seed": int.from_bytes(hashlib.sha256(f"{study.seed}/{number}".encode()).digest()[:4]),
        "goal": study.goal,
        "space": space,
        "trials": [
            {
                "parameters": {
                    name: study.parameters[name].value(text)
                    for name, text in parameters[trial.number].items()
                },
                "is_complete": trial.is_complete,
                "rungs": [[step, repr(value)] for step, value in zip(steps, trial.rungs, strict=False)],
                "value": repr(trial.value),
            }
            for trial in visible
        ],
    }


def parse_answer(study: Study, response: object) -> dict[str, str]:
    """Return the parameters in Optuna's answer.

    Raises:
        ValueError: a parameter is missing, or its value is none of the study's.
    """
    if not isinstance(response, Mapping) or sorted(response) != sorted(study.parameters):
        raise ValueError(f"{response!r:.80}; allowed: a value for each of {', '.join(study.parameters)}")
    result = {}
    for name in sorted(study.parameters):
        value = response[name]
        if type(value) not in (int, float) or not math.isfinite(value):
            raise ValueError(f"{name}: {value!r:.80}; allowed: a number")
        result[name] = study.parameters[name].text(value)
    return result


def _draw(parameter: StudyParameter, uniform: float) -> str:
    """Return the value at ``uniform``, from 0 to 1, of the parameter's distribution."""
    if parameter.count:
        return parameter.text(int(uniform * parameter.count))
    low, high = parameter.min, parameter.max
    if parameter.log:
        return parameter.text(min(high, max(low, low * (high / low) ** uniform)))
    return parameter.text(low + (high - low) * uniform)
