"""Shared parts of the figures: axes, areas, bars, markers.

Colours are CSS variables of the page; its script replaces them by the values of the light or dark scheme.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from gpu_spot.text import counted, duration
from market.replay.ledger import Happening
from rehearsal.report import series
from rehearsal.results.run import Run

Data: TypeAlias = dict[str, Any]

WIDE_LEFT: Final = 88
"""Left margin in pixels of aligned figures, wide enough for pool names."""

LOST: Final = {"announced": "--announced", "unannounced": "--lost"}
"""Colours of interrupted instances."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure; ``alt`` describes it in words, ``timeline`` lets it zoom with the others."""

    id: str
    title: str
    caption: str
    alt: str
    data: list[Data]
    layout: Data
    timeline: bool = False


def base_layout(height: int, y_title: str, left_margin: int = 52) -> Data:
    """Return the layout of a figure, ``height`` pixels high."""
    line = {"linecolor": "var(--rule)", "gridcolor": "var(--rule)", "zeroline": False, "fixedrange": False}
    return {
        "height": height,
        "autosize": True,
        "margin": {"l": left_margin, "r": 14, "t": 12, "b": 40},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "var(--sans)", "size": 12, "color": "var(--muted)"},
        "legend": {
            "orientation": "h",
            "traceorder": "normal",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
        },
        "hovermode": "x unified",
        "hoverlabel": {
            "bgcolor": "var(--card)",
            "bordercolor": "var(--rule)",
            "font": {"color": "var(--ink)"},
        },
        "xaxis": line | {"showgrid": False, "ticks": "outside", "tickcolor": "var(--rule)"},
        "yaxis": line | {"title": {"text": y_title, "standoff": 8}, "fixedrange": True},
    }


def time_layout(run: Run, height: int, y_title: str, left_margin: int = 52) -> Data:
    """Return the layout of a figure over simulated time, with the warm-up shaded."""
    layout = base_layout(height, y_title, left_margin)
    layout["xaxis"] |= {
        "type": "date",
        "range": [ms(run, 0), ms(run, run.ticks)],
        "hoverformat": "%a %b %-d, %H:%M",
        "tickformatstops": [
            {"dtickrange": [None, 86_399_999], "value": "%H:%M\n%b %-d"},
            {"dtickrange": [86_400_000, None], "value": "%b %-d"},
        ],
    }
    layout["yaxis"] |= {"rangemode": "tozero"}
    layout["shapes"] = [
        {
            "type": "rect",
            "xref": "x",
            "yref": "paper",
            "x0": ms(run, 0),
            "x1": ms(run, min(run.ledger.warm_up, run.ticks)),
            "y0": 0,
            "y1": 1,
            "fillcolor": "var(--shade)",
            "line": {"width": 0},
        }
    ]
    return layout


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


def target(run: Run, value: float, name: str = "Target") -> Data:
    """Return the dashed line of a constant target."""
    return aimed([ms(run, 0), ms(run, run.ticks)], [value, value], name)


def aimed(x: Sequence[int], y: Sequence[float], name: str = "Target") -> Data:
    """Return the dashed line of a changing target."""
    return line(name, "--ink", x, y, line={"dash": "dash", "shape": "hv"})


def bars(kind: str, x: Sequence[float], y: Sequence[float], **more: Any) -> Data:
    """Return bars of interrupted instances: ``announced`` or ``unannounced``."""
    value = "x" if more.get("orientation") == "h" else "y"
    return {
        "type": "bar",
        "name": kind.capitalize(),
        "x": x,
        "y": y,
        "marker": filled(LOST[kind]),
        "hovertemplate": f"%{{{value}}} {kind}<extra></extra>",
        **more,
    }


def filled(colour: str) -> Data:
    """Return the style of a bar with a thin border in the background colour."""
    return {"color": f"var({colour})", "line": {"width": 0.5, "color": "var(--card)"}}


def marks(run: Run, losses: Iterable[Happening], rows: dict[str, int], kind: str) -> Data:
    """Return a marker for each interruption, on the row of its pool."""
    shown = [loss for loss in losses if loss.kind == kind]
    return markers(
        f"Lost, {kind}",
        [ms(run, loss.tick) for loss in shown],
        [rows[loss.where] for loss in shown],
        [f"{counted(loss.count, 'instance')} lost, {kind}" for loss in shown],
        symbol="circle" if kind == "announced" else "x",
        size=8 if kind == "announced" else 9,
        color=f"var({LOST[kind]})",
        line={"width": 1, "color": "var(--card)"},
    )


def swatch(name: str, colour: str) -> Data:
    """Return a legend entry for a trace without one."""
    marker = {"symbol": "square", "size": 11, "color": f"var({colour})"}
    return {"type": "scatter", "mode": "markers", "name": name, "x": [None], "y": [None], "marker": marker}


def two_lines(pool: str) -> str:
    """Return the label of a pool: zone above instance type."""
    kind, _, zone = pool.partition("@")
    return f"{zone}<br>{kind}" if zone else pool


def shortage_text(shortage: series.Shortage, target_count: int) -> str:
    """Return the hover text of a shortage."""
    cause = f"<br>{shortage.cause}" if shortage.cause else ""
    return f"{shortage.lowest} of {target_count} ready for {duration(shortage.ticks)}{cause}"


def averaged(run: Run) -> str:
    """Return the note for a timeline of averages, empty if it shows every change."""
    width = series.stretch(run)
    return f" Lines are averages over {duration(width)}." if width > 1 else ""


def open_share(edges: Sequence[int], means: Sequence[float]) -> float:
    """Return the share of the time in which a pool had capacity."""
    open_ticks = sum(b - a for a, b, mean in zip(edges, edges[1:], means, strict=False) if mean > 0)
    return open_ticks / edges[-1]
