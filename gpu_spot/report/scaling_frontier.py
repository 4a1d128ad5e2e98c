"""Plot cost against wait, a panel for each load: our rule along its knob, the others as tuned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

_WIDTH, _HEIGHT, _LEFT, _GAP, _TOP, _BOTTOM = 330, 320, 56, 20, 44, 46
_OURS, _OTHERS = "#0b7a75", "#b3541e"
_FAMILY: Final = "gpu-spot"


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
    """Return one load's axes and points: better is down and to the left."""
    most_cost = 1.25 * max(p["held_out"]["cost"] for p in points)
    most_wait = 1.1 * max(1.0, *(p["held_out"]["p99_wait"] for p in points))
    left, right = offset + _LEFT, offset + _WIDTH - _GAP

    def at(point: Mapping[str, Any]) -> tuple[float, float]:
        cost, wait = point["held_out"]["cost"], point["held_out"]["p99_wait"]
        return (
            left + cost / most_cost * (right - left),
            _HEIGHT - _BOTTOM - wait / most_wait * (_HEIGHT - _TOP - _BOTTOM),
        )

    parts = [
        f'<path d="M{left} {_TOP}V{_HEIGHT - _BOTTOM}H{right}" fill="none" stroke="#999"/>',
        f'<text x="{(left + right) / 2}" y="{_TOP - 10}" text-anchor="middle">{escape(load)}</text>',
        f'<text x="{(left + right) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">'
        "cost, on-demand workers</text>",
    ]
    for quarter in range(5):
        x, y = quarter / 4, _HEIGHT - _BOTTOM - quarter / 4 * (_HEIGHT - _TOP - _BOTTOM)
        parts.append(
            f'<text x="{left - 5}" y="{y + 4:.1f}" text-anchor="end">{x * most_wait:.0f} s</text>'
            f'<text x="{left + x * (right - left):.1f}" y="{_HEIGHT - _BOTTOM + 15}" text-anchor="middle">'
            f"{x * most_cost:.1f}</text>"
        )
    ours = [p for p in points if p["family"] == _FAMILY]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(at, ours))
    parts.append(f'<polyline points="{line}" fill="none" stroke="{_OURS}" stroke-width="2"/>')
    for point in points:
        (x, y), is_ours = at(point), point["family"] == _FAMILY
        colour = _OURS if is_ours else _OTHERS
        label = point["name"].partition("@")[2] if is_ours else point["family"]
        place = (
            f'x="{x - 6:.1f}" y="{y + 13:.1f}" text-anchor="end"'
            if is_ours
            else f'x="{x - 6:.1f}" y="{y:.1f}" text-anchor="end"'
            if x > (left + right) / 2
            else f'x="{x + 6:.1f}" y="{y:.1f}"'
        )
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
            f'<text {place} fill="{colour}">{escape(label)}</text>'
        )
    return parts
