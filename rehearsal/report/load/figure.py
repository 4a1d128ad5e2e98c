"""The figure of a load: requests, workers, waits and cost on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from gpu_spot.text import number, percent
from market.load.account import LoadAccount, LoadMinute
from rehearsal.report.plotting import WIDE_LEFT, Data, Figure, line, ms, time_layout
from rehearsal.results.run import Run

_PANELS = ("requests/s", "workers", "wait, s", "US dollars")
_GAP = 0.07


def load(run: Run, account: LoadAccount) -> Figure:
    """Return the figure of the load with four panels."""
    saved = account.paid / account.on_demand
    facts = (
        f"{number(account.requests)} requests: median wait {account.half:.0f} s, 99th percentile "
        f"{account.p99_seconds:.0f} s (limit {account.allowed:g} s). The bill is ${account.paid:.2f}, "
        f"{percent(saved)} of ${account.on_demand:.2f} for {account.peak.count} × "
        f"{account.peak.instance_type} On-Demand, sized for the busiest five minutes."
    )
    return Figure(
        "load",
        "Load and capacity",
        f"{facts} From top to bottom: requests and the throughput of the ready workers; ready workers and "
        "the scaler's target; wait of requests for a worker; cumulative cost.",
        f"Four timelines: load, workers, wait and money. {facts}",
        [*_came(run, account), *_workers(run, account), *_waited(run, account), *_paid(run, account)],
        _layout(run, account),
        timeline=True,
    )


def _layout(run: Run, account: LoadAccount) -> Data:
    layout = time_layout(run, 720, _PANELS[0], left_margin=WIDE_LEFT)
    first: Data = layout["yaxis"]
    count = len(_PANELS)
    height = (1 - _GAP * (count - 1)) / count
    for index, title in enumerate(_PANELS):
        top = 1 - index * (height + _GAP)
        name = "yaxis" if index == 0 else f"yaxis{index + 1}"
        layout[name] = first | {
            "title": {"text": title, "standoff": 8},
            "domain": [max(0.0, round(top - height, 4)), round(top, 4)],
        }
    # Waits far above the limit would hide all others; the caption has their length.
    longest = max((wait.p99_seconds for wait in account.waits if wait.p99_seconds is not None), default=0.0)
    layout["yaxis3"]["range"] = [0, 1.05 * max(account.allowed * 1.2, min(longest, 4 * account.allowed))]
    layout["xaxis"]["anchor"] = f"y{count}"
    return layout


_STEPS: Final = {"shape": "hv"}


def _came(run: Run, account: LoadAccount) -> list[Data]:
    shown, times = account.minutes, _times(run, account.minutes)
    came, able = [round(minute.arriving, 3) for minute in shown], [round(minute.able, 3) for minute in shown]
    hover = "%{y:.2f}/s possible"
    return [
        line("Requests", "--lost", times, came, "%{y:.2f}/s received", line=_STEPS, yaxis="y"),
        line("Throughput of ready workers", "--ready", times, able, hover, line=_STEPS, yaxis="y"),
    ]


def _workers(run: Run, account: LoadAccount) -> list[Data]:
    shown, times = account.minutes, _times(run, account.minutes)
    ready, aim = [minute.ready for minute in shown], [minute.target for minute in shown]
    area = {"fill": "tozeroy", "fillcolor": "var(--ready-fill)", "showlegend": False}
    dashed = _STEPS | {"dash": "dash"}
    return [
        line("Workers ready", "--ready", times, ready, "%{y} ready", line=_STEPS, yaxis="y2", **area),
        line("Scaler target", "--ink", times, aim, "target %{y}", line=dashed, yaxis="y2"),
    ]


def _waited(run: Run, account: LoadAccount) -> list[Data]:
    times, ends = [ms(run, wait.tick) for wait in account.waits], [ms(run, 0), ms(run, run.ticks)]
    p99, half = [wait.p99_seconds for wait in account.waits], [wait.half for wait in account.waits]
    dashed = {"dash": "dash", "shape": "linear"}
    hover = "99th percentile %{y:.0f} s"
    return [
        line("99th percentile", "--announced", times, p99, hover, line=_STEPS, yaxis="y3"),
        line("Median", "--spot", times, half, "median %{y:.0f} s", line=_STEPS, yaxis="y3"),
        line("Limit", "--ink", ends, [account.allowed] * 2, line=dashed, yaxis="y3", showlegend=False),
    ]


def _paid(run: Run, account: LoadAccount) -> list[Data]:
    begin = min(run.ledger.warm_up, len(account.minutes) - 1)
    shown, ends = account.minutes[begin:], [ms(run, begin), ms(run, run.ticks)]
    bill = [round(total, 3) for total in accumulate(minute.paid for minute in shown)]
    straight: Data = {"line": {"shape": "linear"}, "yaxis": "y4"}
    peak, hover = [0, round(account.on_demand, 3)], "$%{y:.2f} On-Demand for the peak"
    return [
        line("Bill", "--spot", _times(run, shown), bill, "$%{y:.2f} paid", **straight)
        | {"showlegend": False, "fill": "tozeroy"},
        line("On-Demand for the peak", "--on-demand", ends, peak, hover, **straight),
    ]


def _times(run: Run, minutes: Sequence[LoadMinute]) -> list[int]:
    return [ms(run, minute.tick) for minute in minutes]
