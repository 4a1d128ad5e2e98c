"""Parameters of which some are in each run and all in ``make soak``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sample(values: Iterable[Any], step: int) -> list[Any]:
    """Return all values (tuples: several parameters): every ``step``-th, and the others marked ``soak``."""
    return [
        value
        if number % step == 0
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.soak)
        for number, value in enumerate(values)
    ]
