"""The shape of ``training[].matrix``: one entry that stands for several experiments.

Up to ``MOST`` are a job and a group each. More share one group, whose instances run one after another.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator, Field

from contracts import limits
from contracts.agent import experiments as names

MOST: Final = 20
"""Experiments of one entry with groups, a role, templates and alarms each; more of them share a group."""
MOST_SHARED: Final = 1000
"""Experiments of one entry that share a group: each is an item that instances look at again and again."""


def _as_text(value: object) -> str:
    """Return a value as the environment has it: 1.0 as ``1``, as whoever hands it on may write either."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{json.dumps(value, default=str)}, allowed: text and numbers")
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value)


Value: TypeAlias = Annotated[
    limits.EnvironmentValue,
    BeforeValidator(_as_text, json_schema_input_type=limits.EnvironmentValue | int | float),
]
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
    if (found := count(matrix)) > MOST_SHARED:
        raise ValueError(f"{found} experiments, allowed: at most {MOST_SHARED}")
    if len(name) > names.LONGEST_NAME:
        raise ValueError(
            f"beside the name {name!r}, allowed: a name of at most {names.LONGEST_NAME} characters, "
            "to which each experiment adds its own"
        )


def count(matrix: Matrix) -> int:
    """Return how many experiments a matrix has."""
    return math.prod(map(len, matrix.values()))
