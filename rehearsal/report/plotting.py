"""Shared parts of the figures: axes, areas, lines, markers.

A figure's data are plain values, drawn as SVG by the page's script. Colours are names of its CSS
variables, for the light and the dark scheme.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from rehearsal.results.run import Run

Data: TypeAlias = dict[str, Any]
"""A layer: ``kind``, ``name`` in the legend, ``colour``, ``x`` and ``y``, and what its kind needs."""

LOST: Final = {"announced": "--announced", "unannounced": "--lost"}
"""Colours of interrupted instances."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure; ``alt`` describes it in words.

    ``axis`` is ``time`` (epoch milliseconds, in UTC) or ``seconds``. The axes' ``titles`` (x, y) say their
    units. ``shaded`` is a range of x with its label; ``height`` is in pixels.
    """

    id: str
    title: str
    caption: str
    alt: str
    layers: list[Data]
    axis: Literal["time", "seconds"]
    titles: tuple[str, str]
    range: tuple[float, float]
    height: int
    shaded: tuple[float, float, str] | None = None

    def to_json(self) -> Data:
        """Return what the script draws."""
        drawn = ("id", "layers", "axis", "titles", "range", "height", "shaded")
        return {name: getattr(self, name) for name in drawn}


def over_time(run: Run, unit: str) -> dict[str, Any]:
    """Return a figure's fields for the whole run, with the part that is not counted shaded."""
    end = min(run.ledger.warm_up, run.ticks)
    return {
        "axis": "time",
        "titles": ("time (UTC)", unit),
        "range": (ms(run, 0), ms(run, run.ticks)),
        "shaded": (ms(run, 0), ms(run, end), "warm-up, not counted") if end else None,
    }


def ms(run: Run, tick: int) -> int:
    """Return the start of ``tick`` in epoch milliseconds."""
    return round(1000 * run.at(tick))


def line(name: str, colour: str, x: Sequence[float], y: Sequence[float], **more: Any) -> Data:
    """Return a line that keeps each value until the next ``x``; ``more``: ``dash``, ``fill``, ``width``."""
    return {"kind": "line", "name": name, "colour": colour, "x": x, "y": y, **more}


def stacked(x: Sequence[float], *layers: tuple[str, str, Sequence[float]]) -> list[Data]:
    """Return areas on top of each other from (name, colour, heights), the lowest first."""
    base: list[float] = [0.0] * len(x)
    drawn = []
    for name, colour, heights in layers:
        top = [low + height for low, height in zip(base, heights, strict=True)]
        drawn.append({"kind": "area", "name": name, "colour": colour, "x": x, "y": top, "base": base})
        base = top
    return drawn


def markers(
    name: str, colour: str, symbol: str, x: Sequence[float], y: Sequence[float], text: Sequence[str]
) -> Data:
    """Return markers (``symbol``: circle, cross or diamond), each with the text of its tooltip."""
    return {"kind": "points", "name": name, "colour": colour, "symbol": symbol, "x": x, "y": y, "text": text}


def target(x: Sequence[float], y: Sequence[float]) -> Data:
    """Return the dashed line of the target."""
    return line("Target", "--ink", x, y, dash="5 4")
