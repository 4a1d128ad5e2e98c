"""The fitted table of the policy ``expected-cost``: how much slack each decision needs.

The numbers are derived parameters: optimal decisions of a model of spot pools whose chances to lose spot and
to regain it depend on the age of the run (``bench/fit/deadline.py``; ``fitted_on``: fingerprints of the
traces that they were derived from). All times are in minutes, prices in parts of on-demand.
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
"""The least slack by compute left; ``inf``: never."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """For one change-over and price: the least slack by age (bins) and compute left (points of the grid).

    ``wait``: idle and no spot, wait rather than start on-demand. ``ripen``: idle with spot, wait for the pool
    to prove itself. ``spot``: idle with spot, take it rather than on-demand. ``move``: on-demand with spot,
    move there.
    """

    wait: tuple[Row, ...]
    ripen: tuple[Row, ...]
    spot: tuple[Row, ...]
    move: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """Where the table is given: left edges of the bins of age with spot and without, and compute left."""

    up: Row
    down: Row
    compute: Row


@dataclass(frozen=True, eq=False)
class Table:
    """Thresholds by price of spot and by change-over in minutes, on one grid."""

    grid: Grid
    by_price: Mapping[float, Mapping[float, Thresholds]]

    def at(self, changeover: float, price: float) -> Thresholds:
        """Return the thresholds for a change-over in minutes and a price of spot.

        Between two of the table in proportion; beyond the first and the last theirs, but those for a
        change-over above the last are scaled.
        """
        low, high, weight = _between(sorted(self.by_price), price)
        cheap = _at(self.by_price[low], changeover)
        return cheap if weight == 0 else _mix(cheap, _at(self.by_price[high], changeover), weight, 1.0)


def _at(by_changeover: Mapping[float, Thresholds], changeover: float) -> Thresholds:
    known = sorted(by_changeover)
    low, high, weight = _between(known, changeover)
    scale = max(1.0, changeover / known[-1])
    return _mix(by_changeover[low], by_changeover[high], weight, scale)


def _between(known: Sequence[float], value: float) -> tuple[float, float, float]:
    """Return the neighbours of a value and how far it is from the lower to the higher."""
    above = bisect_right(known, value)
    low, high = known[max(0, above - 1)], known[min(above, len(known) - 1)]
    return low, high, (value - low) / (high - low) if low < value < high else 0.0


def at(points: Row, row: Row, compute: float) -> float:
    """Return the row's value at ``compute``: level before the first point, in proportion from the last on."""
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
    """Return the table that comes with this package."""
    return parse(json.loads(resources.files(__package__).joinpath("thresholds.json").read_text("utf-8")))


def parse(raw: Mapping[str, Any]) -> Table:
    """Return the table from its JSON form, in which ``null`` stands for *never*."""
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
