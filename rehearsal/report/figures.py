"""The figures of the page as plotly data.

Colours are CSS variables of the page; its script replaces them by the values of the light or dark scheme.
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
    """Return all figures of a run in page order."""
    if run.load is not None:
        return (load(run, run.load), *_of_a_moving_target(run))
    if run.served is not None:
        return (serving.waiting(run, run.served), *_of_a_moving_target(run))
    drawn = [draw(run) for draw in FIGURES]
    if run.migrations is not None:
        drawn.insert(_AFTER_READY, volume(run, run.migrations))
    return tuple(drawn)


def _of_a_moving_target(run: Run) -> list[Figure]:
    return [draw(run) for draw in FIGURES if draw not in _OF_A_FIXED_TARGET]


def capacity(run: Run) -> Figure:
    """Return the figure of paid instances, Spot and On-Demand, against the target."""
    line = series.steps(run)
    times = [ms(run, step.tick) for step in line]
    peak = max(step.on_demand for step in line)
    bridged = (
        " On-Demand instances run while Spot is unavailable or booting, and terminate as soon as a Spot "
        "worker that replaces them is ready."
        if run.migrations is None
        else ""
    )
    return Figure(
        "capacity",
        "Capacity against target",
        f"Instances that are billed over time.{bridged}{averaged(run)}",
        f"Stacked timeline of Spot and On-Demand instances over {duration(run.ticks)}, against a target of "
        f"{run.target}{' at first' if run.load else ''}; at most {peak:g} On-Demand at once.",
        [
            area(times, [s.on_demand for s in line], "On-Demand", "--on-demand"),
            area(times, [s.spot for s in line], "Spot", "--spot"),
            aimed(times, [s.target for s in line]),
        ],
        time_layout(run, 300, "instances", left_margin=WIDE_LEFT),
        timeline=True,
    )


def ready(run: Run) -> Figure:
    """Return the figure of ready workers against the target, with a marker for every shortage."""
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
        f"in total {counted(lost, 'worker-minute')} of {run.target * run.ledger.counted:,}."
        if shortages
        else "No shortage after the warm-up."
    )
    limit = f" Only the {len(shown)} worst are marked." if len(shown) < len(shortages) else ""
    return Figure(
        "ready",
        "Ready workers against target",
        "Workers that send heartbeats and are not draining. Every time with fewer workers than the "
        f"target is marked, even if short. {summed}{limit}{averaged(run)}",
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
    """Return the figure of each pool's Spot capacity over time, with the instances lost."""
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
        "hovertemplate": "capacity for %{z}<extra></extra>",
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
        "Spot capacity",
        f"Filled while a pool had Spot capacity (share of the time: {open_shares}). The markers are "
        "interrupted instances of this group.",
        f"One strip for each pool, filled while it had Spot capacity: {open_shares}. "
        f"{counted(sum(loss.count for loss in losses), 'instance')} interrupted.",
        [
            heat,
            swatch("Spot capacity", "--open"),
            marks(run, losses, rows, "announced"),
            marks(run, losses, rows, "unannounced"),
        ],
        layout,
        timeline=True,
    )


def interruptions(run: Run) -> Figure:
    """Return the figure of interruptions over time."""
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
        f"Interrupted Spot instances per {duration(width)}: {announced:,} after a two-minute notice, "
        f"{unannounced:,} without.",
        f"Interruptions per {duration(width)}: {announced} announced, {unannounced} unannounced.",
        [
            bars(kind, x, [getattr(lost, kind) for lost in bins.values()], offset=0, width=width * 60_000)
            for kind in ("announced", "unannounced")
        ],
        layout,
        timeline=True,
    )


def by_pool(run: Run) -> Figure:
    """Return the figure of interruptions by pool."""
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
        "Interrupted Spot instances. A pool is one instance type in one availability zone.",
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
"""Not shown under a load and with real workers: the target changes, by the scaler or by the office."""
_AFTER_READY: Final = 2
"""Index below the ready workers, for figures with the same time axis."""
