"""The parts that the pictures share: axes, areas, bars, marks.

Colours are the page's CSS variables: its script puts in what they mean in the reader's light or dark scheme.
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
"""Pixels left of the axis where pictures stand above each other: room for the names of pools."""

LOST: Final = {"announced": "--announced", "unannounced": "--lost"}
"""The colours of instances lost."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture: ``alt`` says in words what it shows, ``timeline`` that it zooms with the others."""

    id: str
    title: str
    caption: str
    alt: str
    data: list[Data]
    layout: Data
    timeline: bool = False


def base_layout(height: int, y_title: str, left_margin: int = 52) -> Data:
    """Return the look of a picture, ``height`` pixels high."""
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
    """Return the look of a picture over the simulated time, its warm-up shaded."""
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
    """Return the epoch millisecond at which ``tick`` begins, as plotly's time axes want it."""
    return round(1000 * run.at(tick))


def line(
    name: str, colour: str, x: Sequence[int | None], y: Sequence[float | None], hover: str = "", **more: Any
) -> Data:
    """Return a line; ``hover`` is what is said of a point of it, ``more`` adds to plotly's trace."""
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
    """Return marks with a text each, which is shown where somebody points at one."""
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
    """Return one layer of a stack of areas."""
    hover, style = f"%{{y:,.3~r}} {name.lower()}", {"shape": shape, "width": 1}
    return line(name, colour, x, y, hover, line=style, stackgroup="all", fillcolor=f"var({colour})")


def target(run: Run, value: float, name: str = "Target") -> Data:
    """Return the dashed line of what is aimed at or compared with."""
    return aimed([ms(run, 0), ms(run, run.ticks)], [value, value], name)


def aimed(x: Sequence[int], y: Sequence[float], name: str = "Target") -> Data:
    """Return the dashed line of what is aimed at, where that changes."""
    return line(name, "--ink", x, y, line={"dash": "dash", "shape": "hv"})


def bars(kind: str, x: Sequence[float], y: Sequence[float], **more: Any) -> Data:
    """Return bars of instances lost: ``announced`` or ``unannounced``."""
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
    """Return the marker of a bar: a hair of background keeps neighbours apart."""
    return {"color": f"var({colour})", "line": {"width": 0.5, "color": "var(--card)"}}


def marks(run: Run, losses: Iterable[Happening], rows: dict[str, int], kind: str) -> Data:
    """Return a mark for each loss on the row of its pool."""
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
    """Return an entry of the legend for what has none of its own."""
    marker = {"symbol": "square", "size": 11, "color": f"var({colour})"}
    return {"type": "scatter", "mode": "markers", "name": name, "x": [None], "y": [None], "marker": marker}


def two_lines(pool: str) -> str:
    """Return the label of a pool, the zone over the instance type."""
    kind, _, zone = pool.partition("@")
    return f"{zone}<br>{kind}" if zone else pool


def shortage_text(shortage: series.Shortage, target_count: int) -> str:
    """Return a shortage in words."""
    cause = f"<br>{shortage.cause}" if shortage.cause else ""
    return f"{shortage.lowest} of {target_count} ready for {duration(shortage.ticks)}{cause}"


def averaged(run: Run) -> str:
    """Return the remark that a timeline needs which does not show every change."""
    width = series.stretch(run)
    return f" Lines are averages over {duration(width)}." if width > 1 else ""


def open_share(edges: Sequence[int], means: Sequence[float]) -> float:
    """Return the share of the time in which a pool could give anything."""
    open_ticks = sum(b - a for a, b, mean in zip(edges, edges[1:], means, strict=False) if mean > 0)
    return open_ticks / edges[-1]
