"""Plot cost against shortage, one point per policy, as an interactive page or an SVG picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lambdas.core.capacity.policies.expected_cost import ExpectedCost
from research.simulation.plots.svg import OTHER_COLOUR, OURS, Picture

_KINDS: Final = (".html", ".svg")
_MIN_SHORTAGE: Final = 1e-5
"""The shortage at which zero is drawn: the axis is logarithmic."""
_WIDTH, _HEIGHT = 720, 400
_MARGIN_LEFT, _MARGIN_RIGHT, _TOP, _BOTTOM = 70, 150, 34, 48


@dataclass(frozen=True, slots=True)
class Point:
    """One policy: ``cost`` in multiples of the bound, ``availability`` a share."""

    name: str
    cost: float
    availability: float

    @property
    def shortage(self) -> float:
        """The shortage as a share of worker time, as drawn."""
        return max(_MIN_SHORTAGE, 1 - self.availability)

    @property
    def ours(self) -> bool:
        """Whether it is a point of our policy, at any value of its parameter."""
        return self.name.partition("@")[0] == ExpectedCost.name

    @property
    def label(self) -> str:
        """The point's label: the parameter's value for our policy, else the policy's name."""
        if not self.ours:
            return self.name
        return self.name.partition("@")[2] or "default"


def check(path: Path) -> None:
    """Raise ``ValueError`` unless a plot can be written to a file of this name."""
    if path.suffix not in _KINDS:
        raise ValueError(f"plot {path} must end in {' or '.join(_KINDS)}")


def text(path: Path, points: Sequence[Point], title: str) -> str:
    """Return the plot for a file of this name; the suffix decides its format."""
    check(path)
    picture = svg(points, title)
    return picture if path.suffix == ".svg" else f"<!doctype html>\n<meta charset=utf-8>\n{picture}"


def curve(points: Sequence[Point]) -> list[Point]:
    """Return our points in order of cost."""
    return sorted((p for p in points if p.ours), key=lambda p: p.cost)


def svg(points: Sequence[Point], title: str) -> str:
    """Return the plot as an SVG picture: better is up and to the left."""
    x_min, x_max = min(p.cost for p in points) * 0.97, max(p.cost for p in points) * 1.03
    shortages = [math.log10(p.shortage) for p in points]
    top, bottom = min(shortages) - 0.1, max(shortages) + 0.1

    def x(cost: float) -> float:
        return _MARGIN_LEFT + (cost - x_min) / (x_max - x_min) * (_WIDTH - _MARGIN_LEFT - _MARGIN_RIGHT)

    def y(shortage: float) -> float:
        return _TOP + (math.log10(shortage) - top) / (bottom - top) * (_HEIGHT - _TOP - _BOTTOM)

    picture = Picture(_WIDTH, _HEIGHT)
    picture.text(_MARGIN_LEFT, 20, title, font_size=14)
    for power in range(math.ceil(top), math.floor(bottom) + 1):
        level = y(10.0**power)
        picture.path(f"M{_MARGIN_LEFT} {level:.1f}H{_WIDTH - _MARGIN_RIGHT}")
        picture.text(_MARGIN_LEFT - 6, level + 4, f"{100 * 10.0**power:g} %", "end")
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0) if (x_max - x_min) / s <= 12)
    for number in range(math.ceil(x_min / step), math.floor(x_max / step) + 1):
        at = x(number * step)
        picture.path(f"M{at:.1f} {_TOP}V{_HEIGHT - _BOTTOM}", "#eee")
        picture.text(at, _HEIGHT - _BOTTOM + 15, f"{number * step:g}", "middle")
    picture.text(
        (_MARGIN_LEFT + _WIDTH - _MARGIN_RIGHT) / 2, _HEIGHT - 10, "cost ÷ clairvoyant bound", "middle"
    )
    picture.text(_WIDTH - _MARGIN_RIGHT, 20, f"{ExpectedCost.name}, by shortageCost", "end", fill=OURS)
    turned = f"translate(16 {_HEIGHT / 2:.0f}) rotate(-90)"
    picture.text(0, 0, "worker time missing", "middle", transform=turned)
    picture.curve((x(p.cost), y(p.shortage)) for p in curve(points))
    labelled: list[tuple[float, float]] = []
    # The labels of our many points yield to the other policies' labels and to the default's.
    for p in sorted(points, key=lambda p: (p.ours, p.label != "default")):
        colour = OURS if p.ours else OTHER_COLOUR
        label = f"{p.name}: {p.cost:.4f} × bound, {100 * p.availability:.3f} %"
        picture.dot(x(p.cost), y(p.shortage), colour, label)
        at_x, at_y = x(p.cost) + 7, y(p.shortage) + (-5 if p.ours else 14)
        if not any(abs(at_x - a) < 30 and abs(at_y - b) < 12 for a, b in labelled):
            labelled.append((at_x, at_y))
            picture.text(at_x, at_y, p.label, fill=colour)
    return str(picture)
