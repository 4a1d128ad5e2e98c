"""The cost figures: cumulative cost, and cost per interval."""

from __future__ import annotations

from gpu_spot.text import duration, number, percent
from rehearsal.report import series
from rehearsal.report.plotting import Figure, area, filled, line, ms, target, time_layout
from rehearsal.results.run import Run


def money(run: Run) -> Figure:
    """Return the figure of the cumulative cost against all On-Demand."""
    account = series.money(run)
    x = [ms(run, entry.tick) for entry in account]
    end = account[-1]
    paid = end.spot + end.on_demand
    layout = time_layout(run, 300, "On-Demand instance-hours")
    return Figure(
        "money",
        "Cost against all On-Demand",
        f"Cumulative cost in hours of one On-Demand instance: {number(round(paid, 1))} "
        f"({number(round(end.spot, 1))} Spot, {number(round(end.on_demand, 1))} On-Demand) instead of "
        f"{number(round(end.all_on_demand, 1))}.",
        f"Cumulative cost: {paid:.1f} On-Demand instance-hours, {end.all_on_demand:.1f} for all On-Demand.",
        [
            area(x, [round(a.on_demand, 3) for a in account], "On-Demand", "--on-demand", "linear"),
            area(x, [round(a.spot, 3) for a in account], "Spot", "--spot", "linear"),
            line(
                "All On-Demand",
                "--ink",
                [x[0], x[-1]],
                [0, end.all_on_demand],
                "%{y:,.0f} all On-Demand",
                line={"dash": "dash"},
            ),
        ],
        layout,
        timeline=True,
    )


def share(run: Run) -> Figure:
    """Return the figure of the cost per interval as a share of all On-Demand."""
    bins = series.spending(run)
    width = series.bin_ticks(run)
    dearest = max(spot + on_demand for _, _, spot, on_demand in bins)
    layout = time_layout(run, 300, "of all On-Demand")
    layout["barmode"] = "stack"
    layout["yaxis"] |= {"tickformat": ".0%", "range": [0, max(1.08, 1.05 * dearest)]}
    x = [ms(run, tick) for tick, *_ in bins]
    widths = [length * 60_000 for _, length, *_ in bins]
    return Figure(
        "share",
        "Price paid over time",
        f"Cost as a share of running {run.target} On-Demand instances all the time, per "
        f"{duration(width)}. An hour of Spot costs {percent(run.rules.spot_price, 0)} of an On-Demand hour.",
        f"Cost per {duration(width)}: at most {percent(dearest)} of all On-Demand, "
        f"{percent(run.ledger.cost)} overall.",
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
            for name, column, colour in (("On-Demand", 3, "--on-demand"), ("Spot", 2, "--spot"))
        ]
        + [target(run, 1, "All On-Demand")],
        layout,
        timeline=True,
    )
