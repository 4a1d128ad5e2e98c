"""Shared parts of the figures: axes, areas, bars, markers.

Colours are CSS variables of the page; its script replaces them by the values of the light or dark scheme.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from rehearsal.results.run import Run

Data: TypeAlias = dict[str, Any]

LOST: Final = {"announced": "--announced", "unannounced": "--lost"}
"""Colours of interrupted instances."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure; ``alt`` describes it in words."""

    id: str
    title: str
    caption: str
    alt: str
    data: list[Data]
    layout: Data


def time_layout(run: Run, height: int, y_title: str) -> Data:
    """Return the layout of a figure over simulated time, ``height`` pixels high, with the warm-up shaded."""
    line = {"linecolor": "var(--rule)", "gridcolor": "var(--rule)", "zeroline": False, "fixedrange": False}
    time = {
        "type": "date",
        "range": [ms(run, 0), ms(run, run.ticks)],
        "hoverformat": "%a %b %-d, %H:%M",
        "tickformatstops": [
            {"dtickrange": [None, 86_399_999], "value": "%H:%M\n%b %-d"},
            {"dtickrange": [86_400_000, None], "value": "%b %-d"},
        ],
    }
    y_axis = {"title": {"text": y_title, "standoff": 8}, "fixedrange": True, "rangemode": "tozero"}
    warm_up = {"x0": ms(run, 0), "x1": ms(run, min(run.ledger.warm_up, run.ticks)), "y0": 0, "y1": 1}
    shade = {"type": "rect", "xref": "x", "yref": "paper", "fillcolor": "var(--shade)", "line": {"width": 0}}
    return {
        "height": height,
        "autosize": True,
        "margin": {"l": 88, "r": 14, "t": 12, "b": 40},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "var(--sans)", "size": 12, "color": "var(--muted)"},
        "legend": {"orientation": "h", "traceorder": "normal", "x": 0, "xanchor": "left"}
        | {"y": 1.02, "yanchor": "bottom"},
        "hovermode": "x unified",
        "hoverlabel": {
            "bgcolor": "var(--card)",
            "bordercolor": "var(--rule)",
            "font": {"color": "var(--ink)"},
        },
        "xaxis": line | {"showgrid": False, "ticks": "outside", "tickcolor": "var(--rule)"} | time,
        "yaxis": line | y_axis,
        "shapes": [shade | warm_up | {"label": {"text": "warm-up, not counted", "textangle": -90}}],
    }


def ms(run: Run, tick: int) -> int:
    """Return the start of ``tick`` in epoch milliseconds, for plotly's time axes."""
    return round(1000 * run.at(tick))


def line(
    name: str, colour: str, x: Sequence[int | None], y: Sequence[float | None], hover: str = "", **more: Any
) -> Data:
    """Return a line; ``hover`` is the text of a point, ``more`` is added to plotly's trace."""
    hover_fields = {"hovertemplate": f"{hover}<extra></extra>"} if hover else {"hoverinfo": "skip"}
    style = {"width": 1.5, "color": f"var({colour})", **more.pop("line", {})}
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "line": style,
        **hover_fields,
        **more,
    }


def markers(name: str, x: Sequence[int], y: Sequence[float], text: Sequence[str], **marker: Any) -> Data:
    """Return markers with hover texts."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": x,
        "y": y,
        "text": text,
        "marker": marker,
        "hovertemplate": "%{text}<extra></extra>",
    }


def area(x: Sequence[int], y: Sequence[float], name: str, colour: str, shape: str = "hv") -> Data:
    """Return one layer of stacked areas."""
    hover, style = f"%{{y:,.3~r}} {name.lower()}", {"shape": shape, "width": 1}
    return line(name, colour, x, y, hover, line=style, stackgroup="all", fillcolor=f"var({colour})")


def target(x: Sequence[int], y: Sequence[float]) -> Data:
    """Return the dashed line of the target."""
    return line("Target", "--ink", x, y, line={"dash": "dash", "shape": "hv"})
