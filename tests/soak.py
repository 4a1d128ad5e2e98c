"""Parameters of which some are in each run, and the others in ``make soak``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sample(values: Iterable[Any], step: int) -> list[Any]:
    """Return all values (tuples: several parameters): every ``step``-th, and the others marked ``soak``."""
    return [_parameter(value, in_each_run=number % step == 0) for number, value in enumerate(values)]


def chosen(values: Iterable[Any], *in_each_run: Any) -> list[Any]:
    """Return all values: those named, and the others marked ``soak``."""
    return [_parameter(value, in_each_run=value in in_each_run) for value in values]


def _parameter(value: Any, *, in_each_run: bool) -> Any:
    parameters = value if isinstance(value, tuple) else (value,)
    return value if in_each_run else pytest.param(*parameters, marks=pytest.mark.soak)
