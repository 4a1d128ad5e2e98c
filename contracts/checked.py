"""Values of stored JSON, checked: each function returns what it is given, or raises ``TypeError``."""

from __future__ import annotations

import math
from typing import Any


def number(value: Any) -> float:
    """Return a finite number."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError(f"{value!r:.80}, a finite number is needed")
    return float(value)


def name(value: Any) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80}, a text is needed")
    return value


def marks(value: Any) -> dict[str, float]:
    """Return finite numbers by name."""
    return {key: number(each) for key, each in value.items()}
