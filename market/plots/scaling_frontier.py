"""Plot cost against wait, a panel for each load: our rule along its knob, the others as tuned."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

_WIDTH, _HEIGHT, _LEFT, _GAP, _TOP, _BOTTOM = 330, 320, 56, 20, 44, 46
_OURS, _OTHERS = "#0b7a75", "#b3541e"
_FAMILY: Final = "gpu-spot"
_LETTER: Final = 5.8
_NAMED: Final = (10.0, 30.0, 60.0, 120.0)
_TICKS: Final = tuple(float(step * 10**power) for power in range(4) for step in (1, 2, 5))


def write(path: Path, judged: Sequence[Mapping[str, Any]]) -> None:
    """Write the picture; ``judged`` as in the benchmark's result."""
    loads = list(dict.fromkeys(one["load"] for one in judged))
    width = _WIDTH * len(loads)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_HEIGHT}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="16" font-size="13">99th percentile of the wait against cost, held-out days; '
        f'<tspan fill="{_OURS}">gpu-spot by the wait allowed, seconds</tspan>, '
        f'<tspan fill="{_OTHERS}">others as tuned</tspan></text>',
    ]
    for index, load in enumerate(loads):
        parts += _panel([one for one in judged if one["load"] == load], load, index * _WIDTH)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>"]) + "\n", encoding="utf-8")


def _panel(points: Sequence[Mapping[str, Any]], load: str, offset: int) -> list[str]:
    """Return one load's axes, both logarithmic, and points: better is down and to the left."""
    left, right, bottom = offset + _LEFT, offset + _WIDTH - _GAP, _HEIGHT - _BOTTOM
    costs = _Axis([p["held_out"]["cost"] for p in points], left, right)
    waits = _Axis([p["held_out"]["p99_wait"] for p in points], bottom, _TOP)
    middle = (left + right) / 2
    parts = [
        f'<path d="M{left} {_TOP}V{bottom}H{right}" fill="none" stroke="#999"/>',
        f'<text x="{middle}" y="{_TOP - 10}" text-anchor="middle">{escape(load)}</text>',
        f'<text x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">cost, on-demand workers</text>',
    ]
    for tick in waits.ticks:
        y = waits.at(tick)
        parts.append(
            f'<path d="M{left} {y:.1f}H{right}" stroke="#eee"/>'
            f'<text x="{left - 5}" y="{y + 4:.1f}" text-anchor="end">{tick:g} s</text>'
        )
    for tick in costs.ticks:
        x = costs.at(tick)
        parts.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{tick:g}</text>')
    placed = [(costs.at(p["held_out"]["cost"]), waits.at(p["held_out"]["p99_wait"]), p) for p in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y, p in placed if p["family"] == _FAMILY)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{_OURS}" stroke-width="2"/>')
    free = -math.inf
    for x, y, point in sorted(placed, key=lambda one: one[1]):
        if point["family"] == _FAMILY:
            knob = point["name"].partition("@")[2]
            label, anchor, at, colour = knob if float(knob) in _NAMED else "", "end", (x - 7, y + 4), _OURS
        else:
            # On the right where it has room, and below what is written above it.
            away = 7 if x + 7 + _LETTER * len(point["family"]) < right + _GAP else -7
            free = max(y + 4, free + 12)
            label, anchor, at = point["family"], "start" if away > 0 else "end", (x + away, free)
            colour = _OTHERS
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/><text x="{at[0]:.1f}" y="{at[1]:.1f}" '
            f'text-anchor="{anchor}" fill="{colour}">{escape(label)}</text>'
        )
    return parts


class _Axis:
    """A logarithmic axis over some values, from one end of a line to the other."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        low, high = max(1.0, min(values)) / 1.3, max(values) * 1.3
        self._low, self._span = math.log(low), math.log(high / low)
        self._begin, self._length = begin, end - begin
        self.ticks = [tick for tick in _TICKS if low <= tick <= high]

    def at(self, value: float) -> float:
        return self._begin + (math.log(max(1.0, value)) - self._low) / self._span * self._length
