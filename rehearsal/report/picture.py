"""A small SVG of the main figures: self-contained, light and dark scheme, no script."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Final

from gpu_spot.text import duration
from rehearsal.report import series
from rehearsal.report.series import TimelineStep
from rehearsal.report.summary import headline
from rehearsal.results.run import Run
from rehearsal.results.summary import summarise

LEFT_EDGE: Final = 44
RIGHT_EDGE: Final = 944
CAPACITY: Final = (104.0, 252.0)
READY: Final = (304.0, 402.0)
"""Top and bottom of the two plots, in SVG units."""

LIMIT: Final = 1200
"""Maximum number of steps, about one for each pixel."""

_DAYS: Final = (1, 2, 3, 7, 14)


def write_plot(run: Run, path: Path) -> None:
    """Write capacity and ready workers against the target as SVG to ``path``."""
    path.write_text(plot(run), encoding="utf-8")


def plot(run: Run) -> str:
    """Return capacity and ready workers against the target as SVG."""
    line = series.steps(run, limit=LIMIT)
    high = max(run.target, *(step.spot + step.on_demand for step in line))
    max_ready = max(run.target, *(step.ready for step in line))
    capacity, ready = _Scale(run, high, *CAPACITY), _Scale(run, max_ready, *READY)
    head = headline(summarise(run))
    return Template((files("rehearsal.report") / "picture.svg.tmpl").read_text(encoding="utf-8")).substitute(
        title=escape(head),
        subtitle=escape(f"{run.stack} / {run.group}, {duration(60 * run.hours)} of a Spot market"),
        grid="\n".join([*capacity.grid(), *ready.grid()]),
        on_demand=capacity.area(line, [s.on_demand for s in line]),
        capacity=capacity.area(line, [s.spot + s.on_demand for s in line]),
        ready=ready.area(line, [s.ready for s in line]),
        shortages="".join(ready.stem(s) for s in series.worst(series.shortages(run))),
        targets="".join(f"M{LEFT_EDGE} {scale.y(run.target)}H{RIGHT_EDGE}" for scale in (capacity, ready)),
        days="\n".join(_days(run, capacity)),
    )


class _Scale:
    """The scale of one plot: ticks to x, instances to y."""

    def __init__(self, run: Run, top_value: float, top: float, bottom: float) -> None:
        self.ticks, self.top_value, self.top, self.bottom = run.ticks, top_value, top, bottom
        self.target = run.target

    def x(self, tick: float) -> float:
        return round(LEFT_EDGE + (RIGHT_EDGE - LEFT_EDGE) * tick / self.ticks, 1)

    def y(self, value: float) -> float:
        return round(self.bottom - (self.bottom - self.top) * value / self.top_value, 1)

    def area(self, line: Sequence[TimelineStep], values: Sequence[float]) -> str:
        """Return the path of a stepped area above zero."""
        path = [f"M{LEFT_EDGE} {self.y(0)}"]
        for (step, value), (following, _) in pairwise(zip(line, values, strict=True)):
            path.append(f"L{self.x(step.tick)} {self.y(value)}H{self.x(following.tick)}")
        return "".join(path) + f"V{self.y(0)}Z"

    def stem(self, shortage: series.Shortage) -> str:
        """Return the path of a shortage, from the target down to the lowest count."""
        return f"M{self.x(shortage.tick)} {self.y(self.target)}V{self.y(shortage.lowest)}"

    def grid(self) -> Iterable[str]:
        """Yield a line and a label for zero, the target and its multiples."""
        for value in range(0, math.floor(self.top_value) + 1, self.target):
            y = self.y(value)
            yield f'  <path class="rule" d="M{LEFT_EDGE} {y}H{RIGHT_EDGE}"/>'
            yield f'  <text x="{LEFT_EDGE - 8}" y="{y + 4}" class="label" text-anchor="end">{value}</text>'


def _days(run: Run, scale: _Scale) -> Iterable[str]:
    """Yield labels at day starts (UTC), at most about ten."""
    every = next((days for days in _DAYS if run.ticks / (1440 * days) <= 10), 28) * 1440
    first = -int(run.start // 60) % 1440
    for tick in range(first, run.ticks, every):
        day = datetime.fromtimestamp(run.at(tick), UTC)
        yield f'  <text x="{scale.x(tick)}" y="{READY[1] + 20}" class="label">{day:%b} {day.day}</text>'
