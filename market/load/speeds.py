"""Requests per second of a saturated worker by instance type: assumed, not measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

SPEEDS: Final = {"g6.xlarge": 0.25, "g5.xlarge": 0.31, "g4dn.xlarge": 0.16}
"""Assumed ratio of an L4, an A10G and a T4."""
MEAN: Final = sum(SPEEDS.values()) / len(SPEEDS)


def assumed(types: Iterable[str]) -> dict[str, float]:
    """Return the speeds of these types; an unknown type has the mean speed."""
    return {name: SPEEDS.get(name, MEAN) for name in types}
