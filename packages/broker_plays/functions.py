"""What workers run: also in an image that holds nothing else of the repository."""

from __future__ import annotations

import time
from collections.abc import Sequence


def double(values: Sequence[int]) -> list[int]:
    """Take a moment, as a model does, and double the numbers."""
    time.sleep(0.004)
    return [2 * value for value in values]


def paced(values: Sequence[tuple[int, float]]) -> list[int]:
    """Double the numbers after the longest of their seconds."""
    time.sleep(max(seconds for _, seconds in values))
    return [2 * number for number, _ in values]
