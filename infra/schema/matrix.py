"""The shape of ``training[].matrix``: one entry that stands for several experiments, a job each."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from pydantic import BeforeValidator, Field

from infra.schema.work import check_text
from userdata.agent.config import limits

if TYPE_CHECKING:
    from infra.schema.training import Training

MOST: Final = 20
"""Experiments of one entry: each has groups, a role, templates and alarms of its own."""
_DIGITS: Final = 6
_LONGEST_NAME: Final = 24 - len("-") - _DIGITS


def _as_text(value: object) -> str:
    """Return a value as the environment has it: 1.0 as ``1``, as whoever hands it on may write either."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{json.dumps(value, default=str)}, allowed: text and numbers")
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value)


Value: TypeAlias = Annotated[limits.EnvironmentValue, BeforeValidator(_as_text)]
Matrix: TypeAlias = Annotated[
    dict[limits.EnvironmentName, Annotated[tuple[Value, ...], Field(min_length=1)]], Field(min_length=1)
]
"""Values by environment variable; an experiment for each combination of them."""


def check(matrix: Matrix, name: str, environment: Mapping[str, str]) -> None:
    """Raise ``ValueError`` for too many experiments, and for what cannot be told apart or handed over."""
    for variable, values in matrix.items():
        if twice := [value for value in values if values.count(value) > 1]:
            raise ValueError(f"{variable} has {twice[0]!r} twice, allowed: each value once")
        if variable in environment:
            raise ValueError(f"{variable} stands in environment, too, allowed: in one of them")
    count = math.prod(map(len, matrix.values()))
    if count > MOST:
        raise ValueError(f"{count} experiments, allowed: at most {MOST} (each is a group of its own)")
    if len(name) > _LONGEST_NAME:
        raise ValueError(
            f"beside the name {name!r}, allowed: a name of at most {_LONGEST_NAME} characters, "
            "to which each experiment adds its own"
        )


def experiments(job: Training) -> tuple[Training, ...]:
    """Return a job's experiments as entries of their own; the job itself where it has no matrix.

    ``matrix`` of an experiment are its own values. They, and nothing else, make its name, so that another
    value, or another order, renames nobody. All share the dataset that one of them prepares.
    """
    if job.matrix is None:
        return (job,)
    return tuple(_experiment(job, chosen) for chosen in _combinations(job.matrix))


def _combinations(matrix: Matrix) -> Iterator[dict[str, str]]:
    # Whoever hands a mapping on may sort it.
    names = sorted(matrix)
    for values in itertools.product(*(matrix[name] for name in names)):
        yield dict(zip(names, values, strict=True))


def _experiment(job: Training, chosen: Mapping[str, str]) -> Training:
    name = _name(job.name, chosen)
    environment = {**job.environment, **chosen}
    check_text(job.command, environment)
    changes = {
        "name": name,
        "environment": environment,
        "matrix": {variable: (value,) for variable, value in chosen.items()},
        "artifacts": job.artifacts and f"{job.artifacts}{name}/",
        "prepare": job.prepare and job.prepare.model_copy(update={"name": job.prepare.name or job.name}),
    }
    return job.model_copy(update=changes)


def _name(job: str, chosen: Mapping[str, str]) -> str:
    """Return ``<job>-<values, as far as there is room>-<digest of the values>``: at most 24 characters."""
    digest = hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:_DIGITS]
    values = "-".join(
        re.sub(r"[^a-z0-9]+", "-", value.lower().replace(".", "p")) for value in chosen.values()
    )
    readable = re.sub(r"-+", "-", values)[: max(0, _LONGEST_NAME - len(job) - 1)].strip("-")
    return "-".join(part for part in (job, readable, digest) if part)
