"""The pictures of money: the bill as it grows, and what was paid in each stretch of time."""

from __future__ import annotations

from gpu_spot.text import duration, number, percent
from rehearsal.report import series
from rehearsal.report.plotting import Figure, area, filled, line, ms, target, time_layout
from rehearsal.results.run import Run


def money(run: Run) -> Figure:
    """Draw the bill as it grows, against all on-demand."""
    account = series.money(run)
    x = [ms(run, entry.tick) for entry in account]
    end = account[-1]
    paid = end.spot + end.on_demand
    layout = time_layout(run, 300, "on-demand instance-hours")
    return Figure(
        "money",
        "Money against all on-demand",
        f"Cumulative cost in hours of one on-demand instance: {number(round(paid, 1))} paid "
        f"({number(round(end.spot, 1))} spot, {number(round(end.on_demand, 1))} on-demand) instead of "
        f"{number(round(end.all_on_demand, 1))}.",
        f"Cumulative cost: {paid:.1f} on-demand instance-hours paid, "
        f"{end.all_on_demand:.1f} for all on-demand.",
        [
            area(x, [round(a.on_demand, 3) for a in account], "On-demand", "--on-demand", "linear"),
            area(x, [round(a.spot, 3) for a in account], "Spot", "--spot", "linear"),
            line(
                "All on-demand",
                "--ink",
                [x[0], x[-1]],
                [0, end.all_on_demand],
                "%{y:,.0f} all on-demand",
                line={"dash": "dash"},
            ),
        ],
        layout,
        timeline=True,
    )


def share(run: Run) -> Figure:
    """Draw what was paid in each stretch as a share of all on-demand."""
    bins = series.spending(run)
    width = series.bin_ticks(run)
    dearest = max(spot + on_demand for _, _, spot, on_demand in bins)
    layout = time_layout(run, 300, "of all on-demand")
    layout["barmode"] = "stack"
    layout["yaxis"] |= {"tickformat": ".0%", "range": [0, max(1.08, 1.05 * dearest)]}
    x = [ms(run, tick) for tick, *_ in bins]
    widths = [length * 60_000 for _, length, *_ in bins]
    return Figure(
        "share",
        "Price paid over time",
        f"Cost as a share of running {run.target} on-demand instances all the time, a bar for "
        f"{duration(width)}. An hour of spot costs {percent(run.rules.spot_price, 0)} of an hour on-demand.",
        f"Cost, a bar for {duration(width)}: at most {percent(dearest)} of all on-demand, "
        f"{percent(run.ledger.cost)} on the whole.",
        [
            {
                "type": "bar",
                "name": name,
                "x": x,
                "y": [round(entry[column], 5) for entry in bins],
                "width": widths,
                "offset": 0,
                "marker": filled(colour),
                "hovertemplate": f"%{{y:.1%}} {name.lower()}<extra></extra>",
            }
            for name, column, colour in (("On-demand", 3, "--on-demand"), ("Spot", 2, "--spot"))
        ]
        + [target(run, 1, "All on-demand")],
        layout,
        timeline=True,
    )
