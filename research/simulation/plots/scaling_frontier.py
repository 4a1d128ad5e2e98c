"""Plot cost against wait, one panel per load: our rule along its parameter, the others as tuned.

Rules that cost more than `_MAX_RATIO` times our dearest point are left to the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from research.simulation.plots.svg import OTHER_COLOUR, OURS, Picture

_WIDTH, _HEIGHT, _MARGIN_LEFT, _GAP, _TOP, _BOTTOM = 330, 362, 56, 20, 44, 88
_FAMILY: Final = "gpu-spot"
_MAX_RATIO: Final = 2.5
_LEGEND: Final = 4
"""Names in a row of the legend."""
_NAMED: Final = (10.0, 30.0, 60.0, 120.0)
_TICKS: Final = tuple(float(step * 10**power) for power in range(4) for step in (1, 2, 5))


def svg(judged: Sequence[Mapping[str, Any]]) -> str:
    """Return the picture; ``judged`` as in the benchmark's result."""
    loads = list(dict.fromkeys(cell["load"] for cell in judged))
    picture = Picture(_WIDTH * len(loads), _HEIGHT)
    picture.text(_MARGIN_LEFT, 16, "99th percentile of the wait against cost, held-out days", font_size=13)
    picture.text(_MARGIN_LEFT + 400, 16, "gpu-spot by the wait allowed, seconds", fill=OURS, font_size=13)
    picture.text(_MARGIN_LEFT + 690, 16, "others as tuned", fill=OTHER_COLOUR, font_size=13)
    dearest = {
        load: max(
            cell["held_out"]["cost"] for cell in judged if (cell["load"], cell["family"]) == (load, _FAMILY)
        )
        for load in loads
    }
    shown = [cell for cell in judged if cell["held_out"]["cost"] <= _MAX_RATIO * dearest[cell["load"]]]
    families = sorted({cell["family"] for cell in shown} - {_FAMILY})
    letters = {family: chr(ord("a") + index) for index, family in enumerate(families)}
    for index, load in enumerate(loads):
        _panel(picture, [cell for cell in shown if cell["load"] == load], load, index * _WIDTH, letters)
    for index, (family, letter) in enumerate(letters.items()):
        row, column = divmod(index, _LEGEND)
        x, y = _MARGIN_LEFT + column * (_WIDTH * len(loads) - _MARGIN_LEFT) / _LEGEND, _HEIGHT - 38 + 14 * row
        picture.text(x, y, f"{letter}  {family}", fill=OTHER_COLOUR)
    return str(picture)


def _panel(
    picture: Picture, points: Sequence[Mapping[str, Any]], load: str, offset: int, letters: Mapping[str, str]
) -> None:
    """Draw one load's axes, both logarithmic, and points: better is down and to the left."""
    x_start, x_end, bottom = offset + _MARGIN_LEFT, offset + _WIDTH - _GAP, _HEIGHT - _BOTTOM
    costs = _Axis([p["held_out"]["cost"] for p in points], x_start, x_end)
    waits = _Axis([p["held_out"]["p99_wait"] for p in points], bottom, _TOP)
    picture.path(f"M{x_start} {_TOP}V{bottom}H{x_end}", "#999")
    picture.text((x_start + x_end) / 2, _TOP - 10, load, "middle")
    picture.text((x_start + x_end) / 2, bottom + 30, "cost, on-demand workers", "middle")
    for tick in waits.ticks:
        picture.path(f"M{x_start} {waits.at(tick):.1f}H{x_end}", "#eee")
        picture.text(x_start - 5, waits.at(tick) + 4, f"{tick:g} s", "end")
    for tick in costs.ticks:
        picture.text(costs.at(tick), bottom + 15, f"{tick:g}", "middle")
    placed = [(costs.at(p["held_out"]["cost"]), waits.at(p["held_out"]["p99_wait"]), p) for p in points]
    picture.curve((x, y) for x, y, p in placed if p["family"] == _FAMILY)
    for x, y, point in placed:
        if point["family"] == _FAMILY:
            knob = point["name"].partition("@")[2]
            picture.dot(x, y, OURS)
            picture.text(x - 7, y + 4, knob if float(knob) in _NAMED else "", "end", fill=OURS)
        else:
            picture.dot(x, y, OTHER_COLOUR)
            picture.text(x + 6, y - 3, letters[point["family"]], fill=OTHER_COLOUR)


class _Axis:
    """A logarithmic axis over some values, from one end of a line to the other."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        low, high = max(1.0, min(values)) / 1.3, max(values) * 1.3
        self._low, self._span = math.log(low), math.log(high / low)
        self._begin, self._length = begin, end - begin
        self.ticks = [tick for tick in _TICKS if low <= tick <= high]

    def at(self, value: float) -> float:
        return self._begin + (math.log(max(1.0, value)) - self._low) / self._span * self._length
