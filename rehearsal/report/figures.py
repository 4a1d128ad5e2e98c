"""The pictures of the page, as plotly figures in plain data.

Colours are the page's CSS variables: its script puts in what they mean in the reader's light or dark scheme.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpu_spot.text import counted, duration, percent
from rehearsal.report import plotting, series, serving
from rehearsal.report.jobs.volume_figure import volume
from rehearsal.report.load.figure import load
from rehearsal.report.money_figures import money, share
from rehearsal.report.plotting import (
    WIDE_LEFT,
    Data,
    Figure,
    aimed,
    area,
    averaged,
    bars,
    base_layout,
    marks,
    ms,
    open_share,
    shortage_text,
    swatch,
    target,
    time_layout,
    two_lines,
)
from rehearsal.results.run import Run


def figures(run: Run) -> tuple[Figure, ...]:
    """Return all pictures of a run in the order in which they are read."""
    if run.load is not None:
        return (load(run, run.load), *(draw(run) for draw in FIGURES if draw not in _OF_A_FIXED_TARGET))
    drawn = [draw(run) for draw in FIGURES]
    if run.migrations is not None:
        drawn.insert(_AFTER_READY, volume(run, run.migrations))
    if run.served is not None:
        drawn.insert(_AFTER_READY, serving.waiting(run, run.served))
    return tuple(drawn)


def capacity(run: Run) -> Figure:
    """Draw paid instances, spot and on-demand, against the target."""
    line = series.steps(run)
    times = [ms(run, step.tick) for step in line]
    peak = max(step.on_demand for step in line)
    bridged = (
        " On-demand steps in while spot is refused or still booting, and goes as soon as a spot worker in "
        "its place is ready."
        if run.migrations is None
        else ""
    )
    return Figure(
        "capacity",
        "Capacity against target",
        f"Instances paid for at every moment.{bridged}{averaged(run)}",
        f"Stacked timeline of spot and on-demand instances over {duration(run.ticks)}, against a target of "
        f"{run.target}{' at first' if run.load else ''}; at most {peak:g} on-demand at once.",
        [
            area(times, [s.on_demand for s in line], "On-demand", "--on-demand"),
            area(times, [s.spot for s in line], "Spot", "--spot"),
            aimed(times, [s.target for s in line]),
        ],
        time_layout(run, 300, "instances", left_margin=WIDE_LEFT),
        timeline=True,
    )


def ready(run: Run) -> Figure:
    """Draw ready workers against the target, with every shortage as a mark that is wide enough to be seen."""
    line, shortages = series.steps(run), series.shortages(run)
    shown = series.worst(shortages)
    stem_x: list[int | None] = []
    stem_y: list[float | None] = []
    for shortage in shown:
        stem_x += [ms(run, shortage.tick)] * 2 + [None]
        stem_y += [shortage.lowest, run.target, None]
    named, shortage_group = f"Shortage ({len(shortages):,})", {"legendgroup": "shortage"}
    lost = sum(s.lost for s in shortages)
    longest = max((s.ticks for s in shortages), default=0)
    summed = (
        f"{counted(len(shortages), 'shortage')} after the warm-up, the longest {duration(longest)}, "
        f"together {counted(lost, 'worker-minute')} of {run.target * run.ledger.counted:,}."
        if shortages
        else "No shortage after the warm-up."
    )
    limit = f" The {len(shown)} worst are marked." if len(shown) < len(shortages) else ""
    return Figure(
        "ready",
        "Ready workers against target",
        "Workers that send heartbeats and have not stopped for a notice. Every moment with fewer than the "
        f"target is marked, however short. {summed}{limit}{averaged(run)}",
        f"Timeline of ready workers against a target of {run.target}. {summed}",
        [
            plotting.line(
                "Ready",
                "--ready",
                [ms(run, s.tick) for s in line],
                [s.ready for s in line],
                "%{y} ready",
                line={"shape": "hv"},
                fill="tozeroy",
                fillcolor="var(--ready-fill)",
            ),
            plotting.line(
                named, "--lost", stem_x, stem_y, line={"width": 2}, **shortage_group, showlegend=False
            ),
            plotting.markers(
                named,
                [ms(run, s.tick) for s in shown],
                [s.lowest for s in shown],
                [shortage_text(s, run.target) for s in shown],
                size=7,
                color="var(--lost)",
                symbol="diamond",
            )
            | shortage_group,
            target(run, run.target),
        ],
        time_layout(run, 260, "workers", left_margin=WIDE_LEFT),
        timeline=True,
    )


def market(run: Run) -> Figure:
    """Draw what each pool could give when, and where instances were lost."""
    edges, means = series.capacity_grid(run)
    rows = {name: row for row, name in enumerate(run.pools)}
    open_shares = ", ".join(
        f"{pool} {percent(open_share(edges, row), 0)}"
        for pool, row in zip(run.pools.values(), means, strict=True)
    )
    losses = series.losses(run)
    heat: Data = {
        "type": "heatmap",
        "x": [ms(run, edge) for edge in edges],
        "y": list(rows.values()),
        "z": [[round(mean, 2) for mean in row] for row in means],
        "zmin": 0,
        "zmax": max(1.0, *(max(row) for row in means)),
        "ygap": 6,
        "showscale": False,
        "colorscale": [[0, "var(--closed)"], [1, "var(--open)"]],
        "hovertemplate": "room for %{z}<extra></extra>",
    }
    layout = time_layout(run, 96 + 46 * len(rows), "", left_margin=WIDE_LEFT)
    layout["hovermode"] = "closest"
    layout["yaxis"] |= {
        "tickvals": list(rows.values()),
        "ticktext": [two_lines(pool) for pool in run.pools.values()],
        "autorange": "reversed",
        "showgrid": False,
    }
    return Figure(
        "market",
        "What the market offered",
        f"Filled while a pool had room for spot instances (share of the time: {open_shares}). The marks are "
        "instances of this group that it took away.",
        f"One strip for each pool, filled while it could give spot instances: {open_shares}. "
        f"It took {counted(sum(loss.count for loss in losses), 'instance')} away.",
        [
            heat,
            swatch("Room for spot", "--open"),
            marks(run, losses, rows, "announced"),
            marks(run, losses, rows, "unannounced"),
        ],
        layout,
        timeline=True,
    )


def interruptions(run: Run) -> Figure:
    """Draw how many instances the market took over time."""
    bins = series.lost_over_time(run)
    width = series.bin_ticks(run)
    announced = sum(lost.announced for lost in bins.values())
    unannounced = sum(lost.unannounced for lost in bins.values())
    x = [ms(run, tick) for tick in bins]
    layout = time_layout(run, 260, "instances lost")
    layout["barmode"] = "stack"
    layout["yaxis"]["tickformat"] = ",d"
    return Figure(
        "interruptions",
        "Interruptions over time",
        f"Spot instances taken, a bar for {duration(width)}: {announced:,} after the two-minute notice, "
        f"{unannounced:,} without.",
        f"Interruptions, a bar for {duration(width)}: {announced} announced, {unannounced} unannounced.",
        [
            bars(kind, x, [getattr(lost, kind) for lost in bins.values()], offset=0, width=width * 60_000)
            for kind in ("announced", "unannounced")
        ],
        layout,
        timeline=True,
    )


def by_pool(run: Run) -> Figure:
    """Draw how many instances each pool took."""
    lost = series.lost_by_pool(run)
    pools = list(run.pools.values())
    rows = list(range(len(pools)))
    layout = base_layout(max(260, 96 + 34 * len(pools)), "")
    layout["barmode"] = "stack"
    layout["hovermode"] = "closest"
    layout["xaxis"] |= {"rangemode": "tozero", "tickformat": ",d", "showgrid": True}
    layout["yaxis"] |= {
        "tickvals": rows,
        "ticktext": [two_lines(pool) for pool in pools],
        "autorange": "reversed",
        "automargin": True,
        "showgrid": False,
    }
    counts = ", ".join(
        f"{pool} {lost_in_pool.announced + lost_in_pool.unannounced}"
        for pool, lost_in_pool in zip(pools, lost.values(), strict=True)
    )
    return Figure(
        "interruptions-by-pool",
        "Interruptions by pool",
        "Where spot instances were taken. A pool is one instance type in one availability zone.",
        f"Bars of interruptions by pool: {counts}.",
        [
            bars(
                kind,
                [getattr(lost_in_pool, kind) for lost_in_pool in lost.values()],
                rows,
                orientation="h",
                width=0.6,
            )
            for kind in ("announced", "unannounced")
        ],
        layout,
    )


FIGURES: Final[tuple[Callable[[Run], Figure], ...]] = (
    capacity,
    ready,
    market,
    interruptions,
    by_pool,
    money,
    share,
)
_OF_A_FIXED_TARGET: Final = (ready, money, share)
"""Under a load its own picture shows workers and money, and a target that moves has no shortage."""
_AFTER_READY: Final = 2
"""Below the ready workers, on the same axis of time."""
