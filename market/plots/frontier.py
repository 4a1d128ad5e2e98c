"""Plot cost against shortage, one point a policy: a page for the browser, or a picture for a document."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from lambdas.core.capacity.policies.expected_cost import ExpectedCost

_KINDS: Final = (".html", ".svg")
_LEAST: Final = 1e-5
"""The share of shortage that is drawn for none at all: the axis is logarithmic."""
_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 150, 34, 48
_OURS, _OTHERS = "#0b7a75", "#b3541e"


@dataclass(frozen=True, slots=True)
class Point:
    """One policy: ``cost`` in multiples of the bound, ``availability`` a share."""

    name: str
    cost: float
    availability: float

    @property
    def shortage(self) -> float:
        """The share of worker time that is missing, as drawn."""
        return max(_LEAST, 1 - self.availability)

    @property
    def ours(self) -> bool:
        """Whether it is a point of our policy, at a value of its knob or by default."""
        return self.name.partition("@")[0] == ExpectedCost.name

    @property
    def label(self) -> str:
        """What stands beside the point: the value of the knob for ours, else the policy."""
        if not self.ours:
            return self.name
        return self.name.partition("@")[2] or "default"


def check(path: Path) -> None:
    """Raise ``ValueError`` unless a plot can be written to a file of this name."""
    if path.suffix not in _KINDS:
        raise ValueError(f"plot {path} ends in {path.suffix!r}, allowed: {', '.join(_KINDS)}")


def text(path: Path, points: Sequence[Point], title: str) -> str:
    """Return the plot for a file of this name; its kind goes by the file's ending."""
    check(path)
    return svg(points, title) if path.suffix == ".svg" else _page(points, title)


def write(path: Path, points: Sequence[Point], title: str) -> None:
    """Write the plot."""
    path.write_text(text(path, points, title), encoding="utf-8")


def curve(points: Sequence[Point]) -> list[Point]:
    """Return our points in order of cost."""
    return sorted((p for p in points if p.ours), key=lambda p: p.cost)


def _page(points: Sequence[Point], title: str) -> str:
    import plotly.graph_objects as go  # type: ignore[import-untyped]  # half a second that only this needs

    ours, others = curve(points), [p for p in points if not p.ours]
    figure = go.Figure(
        [
            go.Scatter(
                x=[p.cost for p in some],
                y=[100 * p.shortage for p in some],
                text=[p.name for p in some],
                customdata=[100 * p.availability for p in some],
                hovertemplate="%{text}<br>%{x:.4f} × bound<br>%{customdata:.3f} % available<extra></extra>",
                mode=mode,
                name=name,
                textposition="top center",
                marker={"color": colour, "size": 9},
            )
            for some, mode, name, colour in (
                (ours, "lines+markers+text", ExpectedCost.name, _OURS),
                (others, "markers+text", "other policies", _OTHERS),
            )
        ]
    )
    figure.update_layout(title=title, template="plotly_white")
    figure.update_xaxes(title="cost ÷ clairvoyant bound")
    figure.update_yaxes(title="worker time missing, %", type="log", autorange="reversed")
    page: str = figure.to_html(include_plotlyjs=True, full_html=True)
    return page


def svg(points: Sequence[Point], title: str) -> str:
    """Return the plot as an SVG picture: better is up and to the left."""
    right = max(p.cost for p in points) * 1.03
    left = min(p.cost for p in points) * 0.97
    top, bottom = (
        math.log10(min(p.shortage for p in points)) - 0.1,
        math.log10(max(p.shortage for p in points)) + 0.1,
    )

    def x(cost: float) -> float:
        return _LEFT + (cost - left) / (right - left) * (_WIDTH - _LEFT - _RIGHT)

    def y(shortage: float) -> float:
        return _TOP + (math.log10(shortage) - top) / (bottom - top) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="20" font-size="14">{escape(title)}</text>',
    ]
    for power in range(math.ceil(top), math.floor(bottom) + 1):
        level = y(10.0**power)
        parts.append(
            f'<path d="M{_LEFT} {level:.1f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>'
            f'<text x="{_LEFT - 6}" y="{level + 4:.1f}" text-anchor="end">{100 * 10.0**power:g} %</text>'
        )
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0) if (right - left) / s <= 12)
    for number in range(math.ceil(left / step), math.floor(right / step) + 1):
        at = x(number * step)
        parts.append(
            f'<path d="M{at:.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="#eee"/>'
            f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 15}" text-anchor="middle">{number * step:g}</text>'
        )
    parts.append(
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2:.0f}" y="{_HEIGHT - 10}" text-anchor="middle">'
        "cost ÷ clairvoyant bound</text>"
        f'<text x="{_WIDTH - _RIGHT}" y="20" text-anchor="end" fill="{_OURS}">'
        f"{ExpectedCost.name}, by shortageCost</text>"
        f'<text transform="translate(16 {_HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle">'
        "worker time missing</text>"
    )
    line = " ".join(f"{x(p.cost):.1f},{y(p.shortage):.1f}" for p in curve(points))
    parts.append(f'<polyline points="{line}" fill="none" stroke="{_OURS}" stroke-width="2"/>')
    labelled: list[tuple[float, float]] = []
    # Ours are many: they give way to the others' labels, and among them to the default's.
    for p in sorted(points, key=lambda p: (p.ours, p.label != "default")):
        colour = _OURS if p.ours else _OTHERS
        parts.append(
            f'<circle cx="{x(p.cost):.1f}" cy="{y(p.shortage):.1f}" r="4" fill="{colour}">'
            f"<title>{escape(p.name)}: {p.cost:.4f} × bound, {100 * p.availability:.3f} %</title></circle>"
        )
        at_x, at_y = x(p.cost) + 7, y(p.shortage) + (-5 if p.ours else 14)
        if not any(abs(at_x - a) < 30 and abs(at_y - b) < 12 for a, b in labelled):
            labelled.append((at_x, at_y))
            parts.append(f'<text x="{at_x:.1f}" y="{at_y:.1f}" fill="{colour}">{escape(p.label)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
