"""``python -m docs.site.dashboard``: the picture of the stack's CloudWatch dashboard, from a rehearsed day.

Widgets, positions, titles and lines are those of the deployed dashboard's JSON; the values are the metrics of
the deployed functions. Metrics of AWS services and GPUs are missing in a rehearsal.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from html import escape
from itertools import pairwise
from statistics import fmean
from typing import Any, Final, TypeAlias

from docs.site.stage import ROOT
from gpu_spot.declared.stackfile import find_project, load
from pulumi_on_moto import sandbox
from pulumi_on_moto.running.clock import simulated
from pulumi_on_moto.running.functions import Invocation
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.commands.deployed import START, deployed
from rehearsal.rehearse import ProgressListener, RehearsalOptions, rehearse

TARGET: Final = ROOT / "docs/img/dashboard.svg"
HOURS: Final = 24
_UNIT: Final = (50, 36)
"""Pixels of a dashboard column and row."""
Statistic: TypeAlias = Callable[[list[float]], float]
_STATISTICS: Final[Mapping[str, Statistic]] = {"Average": fmean, "Maximum": max, "Minimum": min, "Sum": sum}
_STYLE: Final = """<style>
svg { --card: #fff; --edge: #d5dbe1; --ink: #17202b; --muted: #5b6776;
  --a: #3a7fc4; --b: #b57a00; --c: #0b7a66; --d: #a0164f;
  font: 12px "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
@media (prefers-color-scheme: dark) { svg { --card: #182029; --edge: #2b3642; --ink: #eaf0f6;
  --muted: #9aa8b7; --a: #6aa9e6; --b: #f0b541; --c: #43c9ab; --d: #f8608f; } }
text { fill: var(--muted); } .t { fill: var(--ink); font-weight: 600; }
rect { fill: var(--card); stroke: var(--edge); }
.g { stroke: var(--edge); } .l { fill: none; stroke-width: 1.6; }
</style>"""
_LINES: Final = (("a", ""), ("b", "7 3"), ("c", "2 2"), ("d", "9 3 2 3"), ("a", "1 4"), ("b", "1 3"))
"""Colour and dashes of a widget's lines; the dashes alone distinguish them."""

Metric: TypeAlias = tuple[str, str, frozenset[tuple[str, str]]]
Points: TypeAlias = dict[float, float]


class RecordingCloud(LocalCloud):
    """A local cloud that records its functions' metrics and decisions from their logs."""

    metrics: defaultdict[Metric, defaultdict[float, list[float]]]
    decisions: list[tuple[float, dict[str, Any]]]

    def run_functions(self) -> list[Invocation]:
        """See ``LocalCloud``."""
        ran = super().run_functions()
        for line in (json.loads(item) for run in ran for item in run.log if item.startswith("{")):
            if line.get("message") == "decision" and line["actions"]:
                self.decisions.append((self.clock.now, line))
            for block in line.get("_aws", {}).get("CloudWatchMetrics", ()):
                of = frozenset((name, line[name]) for name in block["Dimensions"][0])
                for name in (item["Name"] for item in block["Metrics"]):
                    values = line[name] if isinstance(line[name], list) else [line[name]]
                    self.metrics[block["Namespace"], name, of][self.clock.now // 60 * 60] += values
        return ran


def main() -> None:
    """Rehearse a day of the stack ``dev`` and draw its dashboard."""
    config = load(find_project(), "dev")
    with simulated(START) as clock, sandbox(config.region) as clients:
        deployment = deployed(clients, config)
        cloud = RecordingCloud(clients, deployment, clock)
        cloud.metrics, cloud.decisions = defaultdict(lambda: defaultdict(list)), []
        options = RehearsalOptions(None, HOURS, (), None, None, notice=0.9, seed=1)
        rehearse(options, cloud, ProgressListener())
        board = clients("cloudwatch").get_dashboard(DashboardName=str(deployment.outputs["dashboard"]))
    widgets = json.loads(board["DashboardBody"])["widgets"]
    TARGET.write_text(drawn(widgets, cloud), "utf-8")


def drawn(widgets: list[Mapping[str, Any]], cloud: RecordingCloud) -> str:
    """Return the picture."""
    high = max(widget["y"] + widget["height"] for widget in widgets) * _UNIT[1]
    parts = [part for widget in widgets for part in _widget(widget, cloud)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1200 {high}" role="img" '
        f'aria-label="A CloudWatch dashboard: {len(widgets)} widgets">\n{_STYLE}\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _widget(widget: Mapping[str, Any], cloud: RecordingCloud) -> Iterator[str]:
    x, y = widget["x"] * _UNIT[0], widget["y"] * _UNIT[1]
    wide, high = widget["width"] * _UNIT[0] - 8, widget["height"] * _UNIT[1] - 8
    properties = widget["properties"]
    yield f'<g transform="translate({x + 4} {y + 4})"><rect width="{wide}" height="{high}" rx="4"/>'
    yield f'<text x="10" y="20" class="t">{escape(properties["title"])}</text>'
    if widget["type"] == "log":
        yield from _decisions(cloud, wide)
    else:
        lines = list(_series(properties["metrics"], cloud.metrics))
        units = escape("; right: ".join(axis["label"] for axis in properties["yAxis"].values()))
        yield f'<text x="10" y="34">{units}</text>'
        if any(points for _, points, _ in lines):
            yield from _plot(lines, wide, high, is_stacked=properties["stacked"])
        else:
            middle = f'x="{wide / 2}" y="{high / 2}" text-anchor="middle"'
            yield f"<text {middle}>measured on AWS, not in a rehearsal</text>"
    yield "</g>"


def _series(metrics: list[Any], recorded: Mapping[Metric, Any]) -> Iterator[tuple[str, Points, bool]]:
    """Yield each line's label, its points, and whether it uses the right axis."""
    by_id: dict[str, Points] = {}
    for *words, options in metrics:
        if words:
            of = frozenset(zip(words[2::2], words[3::2], strict=True))
            points_by_time = recorded.get((words[0], words[1], of), {})
            points = {at: _STATISTICS[options["stat"]](values) for at, values in points_by_time.items()}
        else:
            parsed = re.fullmatch(r"(?:100 \* )?(\w+) ([/-]) (\w+)", options["expression"])
            assert parsed is not None, options
            second = by_id[parsed[3]]
            both = {at: (a, second[at]) for at, a in by_id[parsed[1]].items() if at in second}
            is_share = parsed[2] == "/"
            points = {at: 100 * a / (b or 1) if is_share else a - b for at, (a, b) in both.items()}
        by_id[options.get("id", "")] = points
        if options.get("visible", True):
            yield options.get("label") or words[1], points, options.get("yAxis") == "right"


def _plot(lines: list[tuple[str, Points, bool]], wide: int, high: int, *, is_stacked: bool) -> Iterator[str]:
    x_min, right, top, bottom = 34, wide - 34, 42, high - 52
    if is_stacked:
        lines = _stacked(lines)
    maxima = [
        max((max(points.values()) for _, points, on in lines if points and on is side), default=0.0) or 1.0
        for side in (False, True)
    ]
    for part in (0, 0.5, 1):
        y = bottom - part * (bottom - top)
        yield f'<path class="g" d="M{x_min} {y:.0f}H{right}"/>'
        yield f'<text x="{x_min - 4}" y="{y + 4:.0f}" text-anchor="end">{maxima[0] * part:.3g}</text>'
        if any(p and r for _, p, r in lines):
            yield f'<text x="{right + 4}" y="{y + 4:.0f}">{maxima[1] * part:.3g}</text>'
    for hour in range(0, HOURS + 1, 6):
        x = x_min + (right - x_min) * hour / HOURS
        yield f'<text x="{x:.0f}" y="{bottom + 15}" text-anchor="middle">{hour:02d}:00</text>'
    at, row = 10.0, high - 22
    for (colour, dashes), (label, points, on_right) in zip(_LINES, lines, strict=False):
        style = f'class="l" style="stroke:var(--{colour});stroke-dasharray:{dashes or "none"}"'
        if points:
            yield f'<path {style} d="{_path(points, maxima[on_right], (x_min, right), (top, bottom))}"/>'
        if at + 30 + 7 * len(label) > wide:
            at, row = 10.0, row + 14
        yield f'<path {style} d="M{at:.0f} {row}h18"/>'
        yield f'<text x="{at + 22:.0f}" y="{row + 4}">{escape(label)}</text>'
        at += 34 + 7 * len(label)


def _stacked(lines: list[tuple[str, Points, bool]]) -> list[tuple[str, Points, bool]]:
    layers, base = [], dict[float, float]()
    for label, points, on_right in lines:
        base = {at: base.get(at, 0.0) + value for at, value in points.items()}
        layers.append((label, base, on_right))
    return layers


def _path(points: Points, maximum: float, across: tuple[int, int], down: tuple[int, int]) -> str:
    """Return steps: a minute that was not simulated has the value before."""

    def x(at: float) -> str:
        return f"{across[0] + (across[1] - across[0]) * (at - START) / (HOURS * 3600):.1f}"

    def y(value: float) -> str:
        return f"{down[1] - (down[1] - down[0]) * value / maximum:.1f}"

    times = sorted(points)
    changes = [times[0], *(b for a, b in pairwise(times) if points[a] != points[b])]
    first = f"M{x(changes[0])} {y(points[changes[0]])}"
    return first + "".join(f"H{x(at)}V{y(points[at])}" for at in changes[1:]) + f"H{x(times[-1])}"


def _decisions(cloud: RecordingCloud, wide: int) -> Iterator[str]:
    room = round(wide / 6.8)
    for number, (at, line) in enumerate(sorted(cloud.decisions, key=lambda decision: -decision[0])[:10]):
        when = time.strftime("%H:%M", time.gmtime(at))
        words = f"{when}  {line['actions'][0]['action']}: {line['reason']}"
        cut = words if len(words) <= room else f"{words[: room - 1]}…"
        yield f'<text x="10" y="{42 + 16 * number}">{escape(cut)}</text>'


if __name__ == "__main__":
    main()
