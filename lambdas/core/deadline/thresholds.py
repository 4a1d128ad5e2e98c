"""The fitted table of the policy ``expected-cost``: the minimum slack of each decision.

The values are optimal decisions in a model of Spot pools whose probabilities of losing and regaining Spot
depend on the age of the run (``research/fit/deadline.py``; ``fitted_on``: fingerprints of the traces used).
Times are in minutes, prices relative to On-Demand.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any

Row = tuple[float, ...]
"""Minimum slack by remaining compute; ``inf``: never."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Minimum slack by age (bins) and remaining compute (grid points), for one restart overhead and price.

    Attributes:
        wait: Idle without Spot: wait, do not start On-Demand.
        ripen: Idle with Spot available: wait for the pool to age.
        spot: Idle with Spot available: start Spot, not On-Demand.
        move: On-Demand with Spot available: move to Spot.
    """

    wait: tuple[Row, ...]
    ripen: tuple[Row, ...]
    spot: tuple[Row, ...]
    move: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """Grid of the table: left edges of age bins with and without Spot, points of remaining compute."""

    up: Row
    down: Row
    compute: Row


@dataclass(frozen=True, eq=False)
class Table:
    """Thresholds by Spot price and by restart overhead in minutes, on one grid."""

    grid: Grid
    by_price: Mapping[float, Mapping[float, Thresholds]]

    def at(self, restart_minutes: float, price: float) -> Thresholds:
        """Return the thresholds for a restart overhead in minutes and a Spot price.

        Values between two of the table are interpolated; beyond the table, the nearest apply, scaled for a
        longer restart overhead.
        """
        low, high, weight = _neighbours(sorted(self.by_price), price)
        cheap = _at(self.by_price[low], restart_minutes)
        return cheap if weight == 0 else _mix(cheap, _at(self.by_price[high], restart_minutes), weight, 1.0)


def _at(by_overhead: Mapping[float, Thresholds], restart_minutes: float) -> Thresholds:
    overheads = sorted(by_overhead)
    low, high, weight = _neighbours(overheads, restart_minutes)
    scale = max(1.0, restart_minutes / overheads[-1])
    return _mix(by_overhead[low], by_overhead[high], weight, scale)


def _neighbours(points: Sequence[float], value: float) -> tuple[float, float, float]:
    """Return the neighbours of a value, and its relative position between them."""
    above = bisect_right(points, value)
    low, high = points[max(0, above - 1)], points[min(above, len(points) - 1)]
    return low, high, (value - low) / (high - low) if low < value < high else 0.0


def at(points: Row, row: Row, compute: float) -> float:
    """Interpolate a row at ``compute``: constant before the first point, proportional after the last."""
    index = bisect_right(points, compute)
    if index == 0:
        return row[0]
    if index == len(points):
        return row[-1] * compute / points[-1]
    low, high = row[index - 1], row[index]
    if low == high or compute == points[index - 1]:
        return low
    if math.isinf(low):
        return math.inf
    return low + (high - low) * (compute - points[index - 1]) / (points[index] - points[index - 1])


@cache
def fitted() -> Table:
    """Return the table of this package."""
    return parse(json.loads(resources.files(__package__).joinpath("thresholds.json").read_text("utf-8")))


def parse(raw: Mapping[str, Any]) -> Table:
    """Parse the JSON form of a table, in which ``null`` means never."""
    grid = Grid(*(_row(raw["grid"][field.name]) for field in fields(Grid)))
    by_price: dict[float, dict[float, Thresholds]] = {}
    for entry in raw["tables"]:
        by_price.setdefault(float(entry["spot_price"]), {})[float(entry["changeover"])] = Thresholds(
            *(tuple(_row(row) for row in entry[field.name]) for field in fields(Thresholds))
        )
    return Table(grid, by_price)


def _row(values: Sequence[float | None]) -> Row:
    return tuple(math.inf if value is None else float(value) for value in values)


def _mix(low: Thresholds, high: Thresholds, weight: float, scale: float) -> Thresholds:
    def between(a: float, b: float) -> float:
        if weight == 0 or a == b:
            return scale * a
        return math.inf if math.isinf(a) else scale * (a + (b - a) * weight)

    return Thresholds(
        *(
            tuple(
                tuple(between(a, b) for a, b in zip(*rows, strict=True))
                for rows in zip(getattr(low, field.name), getattr(high, field.name), strict=True)
            )
            for field in fields(Thresholds)
        )
    )
