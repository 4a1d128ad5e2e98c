"""The figures of the page as plotly data: capacity, ready workers."""

from __future__ import annotations

from gpu_spot.text import counted, duration
from rehearsal.report import series
from rehearsal.report.plotting import LOST, Figure, area, line, markers, ms, target, time_layout
from rehearsal.results.run import Run


def figures(run: Run) -> tuple[Figure, ...]:
    """Return all figures of a run in page order."""
    return (capacity(run), ready(run))


def capacity(run: Run) -> Figure:
    """Return the figure of paid instances, Spot and On-Demand, with each interruption, against the target."""
    shown, losses = series.steps(run), series.losses(run)
    times = [ms(run, step.tick) for step in shown]
    peak = max(step.on_demand for step in shown)
    bridged = (
        " On-Demand instances run while Spot is unavailable or booting, and terminate as soon as a Spot "
        "worker that replaces them is ready."
        if run.migrations is None
        else ""
    )
    return Figure(
        "capacity",
        "Capacity against target",
        f"Instances that are billed over time.{bridged} The markers are interrupted instances "
        f"({series.by_pool(run)}).",
        f"Stacked timeline of Spot and On-Demand instances over {duration(run.ticks)}, against a target of "
        f"{run.target}; at most {peak:g} On-Demand at once; "
        f"{counted(sum(loss.count for loss in losses), 'instance')} interrupted.",
        [
            area(times, [step.on_demand for step in shown], "On-Demand", "--on-demand"),
            area(times, [step.spot for step in shown], "Spot", "--spot"),
            target(times, [step.target for step in shown]),
            *(
                markers(
                    f"Interrupted, {kind}",
                    [ms(run, loss.tick) for loss in losses if loss.kind == kind],
                    [run.target for loss in losses if loss.kind == kind],
                    [
                        f"{counted(loss.count, 'instance')} of {run.pools[loss.where]} interrupted, {kind}"
                        for loss in losses
                        if loss.kind == kind
                    ],
                    symbol="circle" if kind == "announced" else "x",
                    size=8,
                    color=f"var({colour})",
                    line={"width": 1, "color": "var(--card)"},
                )
                for kind, colour in LOST.items()
            ),
        ],
        time_layout(run, 300, "instances"),
    )


def ready(run: Run) -> Figure:
    """Return the figure of ready workers against the target, with a marker for every shortage."""
    shown, shortages = series.steps(run), series.shortages(run)
    times = [ms(run, step.tick) for step in shown]
    stem_x: list[int | None] = []
    stem_y: list[float | None] = []
    for shortage in shortages:
        stem_x += [ms(run, shortage.tick)] * 2 + [None]
        stem_y += [shortage.lowest, run.target, None]
    named, shortage_group = f"Shortage ({len(shortages):,})", {"legendgroup": "shortage"}
    lost = sum(shortage.lost for shortage in shortages)
    longest = max((shortage.ticks for shortage in shortages), default=0)
    summed = (
        f"{counted(len(shortages), 'shortage')} after the warm-up, the longest {duration(longest)}, "
        f"in total {counted(lost, 'worker-minute')} of {run.target * run.ledger.counted:,}."
        if shortages
        else "No shortage after the warm-up."
    )
    return Figure(
        "ready",
        "Ready workers against target",
        "Workers that send heartbeats and are not draining. Every time with fewer workers than the "
        f"target is marked, even if short. {summed}",
        f"Timeline of ready workers against a target of {run.target}. {summed}",
        [
            line(
                "Ready",
                "--ready",
                times,
                [step.ready for step in shown],
                "%{y} ready",
                line={"shape": "hv"},
                fill="tozeroy",
                fillcolor="var(--ready-fill)",
            ),
            line(named, "--lost", stem_x, stem_y, line={"width": 2}, **shortage_group, showlegend=False),
            markers(
                named,
                [ms(run, shortage.tick) for shortage in shortages],
                [shortage.lowest for shortage in shortages],
                [
                    f"{shortage.lowest} of {run.target} ready for {duration(shortage.ticks)}"
                    + (f"<br>{shortage.cause}" if shortage.cause else "")
                    for shortage in shortages
                ],
                size=7,
                color="var(--lost)",
                symbol="diamond",
            )
            | shortage_group,
            target(times, [step.target for step in shown]),
        ],
        time_layout(run, 260, "workers"),
    )
