"""Settings of ``training[].matrix``: an entry that defines several experiments.

Up to ``MAX_SEPARATE_EXPERIMENTS`` are a job and a group each. More share one group, whose instances run one
experiment after another.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator, Field

from contracts import limits
from contracts.agent import experiments as names

MAX_SEPARATE_EXPERIMENTS: Final = 20
"""Experiments of an entry that have a group, a role, launch templates and alarms each; more share a group."""
MAX_SHARED_EXPERIMENTS: Final = 1000
"""Experiments of an entry that share a group: each is a table item that all instances poll."""


def _as_text(value: object) -> str:
    """Return a value as the text of a variable; 1.0 is ``1``, because parsers may return either for 1."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"must be text or a number, not {json.dumps(value, default=str)}")
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
"""Values by environment variable. Each combination is an experiment."""


def check(matrix: Matrix, name: str, environment: Mapping[str, str]) -> None:
    """Raise ``ValueError`` for too many experiments, for duplicate values and for conflicting names."""
    for variable, values in matrix.items():
        if duplicates := [value for value in values if values.count(value) > 1]:
            raise ValueError(f"{variable} has {duplicates[0]!r} twice; list each value once")
        if variable in environment:
            raise ValueError(f"{variable} is also in environment or secrets; set it in one of them")
    if (experiments := count(matrix)) > MAX_SHARED_EXPERIMENTS:
        raise ValueError(f"must have at most {MAX_SHARED_EXPERIMENTS} experiments, not {experiments}")
    if len(name) > names.MAX_NAME_LENGTH:
        raise ValueError(
            f"needs a job name of at most {names.MAX_NAME_LENGTH} characters, because each "
            f"experiment's name adds to it; {name!r} is too long"
        )


def count(matrix: Matrix) -> int:
    """Return the number of experiments of a matrix."""
    return math.prod(map(len, matrix.values()))
