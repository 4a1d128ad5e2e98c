"""A load in one picture: what came, who was ready, how long it waited, what it cost, on one axis of time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from gpu_spot.text import number, percent
from market.load.account import LoadAccount, LoadMinute
from rehearsal.report.plotting import WIDE_LEFT, Data, Figure, ms, time_layout
from rehearsal.results.run import Run

_PANELS = ("requests/s", "workers", "wait, s", "US dollars")
_GAP = 0.07


def load(run: Run, account: LoadAccount) -> Figure:
    """Draw the load and what was made of it: four panels."""
    saved = account.paid / account.on_demand
    told = (
        f"{number(account.requests)} requests: half waited at most {account.half:.0f} s, 99 of 100 at most "
        f"{account.most:.0f} s ({account.allowed:g} s asked). The bill is ${account.paid:.2f}, "
        f"{percent(saved)} of ${account.on_demand:.2f} for {account.peak.count} × "
        f"{account.peak.instance_type} on-demand, sized for the busiest five minutes."
    )
    return Figure(
        "load",
        "A load, and who was there for it",
        f"{told} From above: what came against what the ready workers could end; ready workers against the "
        "scaler's target; how long requests waited for a worker; the bill as it grows.",
        f"Four timelines: load, workers, wait and money. {told}",
        [*_came(run, account), *_workers(run, account), *_waited(run, account), *_paid(run, account)],
        _layout(run, account),
        timeline=True,
    )


def _layout(run: Run, account: LoadAccount) -> Data:
    made = time_layout(run, 720, _PANELS[0], left=WIDE_LEFT)
    first: Data = made["yaxis"]
    count = len(_PANELS)
    height = (1 - _GAP * (count - 1)) / count
    for place, title in enumerate(_PANELS):
        top = 1 - place * (height + _GAP)
        name = "yaxis" if place == 0 else f"yaxis{place + 1}"
        made[name] = first | {
            "title": {"text": title, "standoff": 8},
            "domain": [max(0.0, round(top - height, 4)), round(top, 4)],
        }
    # Waits above a few times what is allowed would hide all others; the figures above say how long they were.
    longest = max((one.most for one in account.waits if one.most is not None), default=0.0)
    made["yaxis3"]["range"] = [0, 1.05 * max(account.allowed * 1.2, min(longest, 4 * account.allowed))]
    made["xaxis"]["anchor"] = f"y{count}"
    return made


def _line(name: str, colour: str, axis: int, **more: object) -> Data:
    line = {"shape": "hv", "width": 1.5, "color": f"var({colour})"}
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "yaxis": "y" if axis == 1 else f"y{axis}",
        "line": line,
        **more,
    }


def _came(run: Run, account: LoadAccount) -> list[Data]:
    shown, times = account.minutes, _times(run, account.minutes)
    return [
        _line(
            "Requests that came",
            "--lost",
            1,
            x=times,
            y=[round(one.arriving, 3) for one in shown],
            hovertemplate="%{y:.2f}/s came<extra></extra>",
        ),
        _line(
            "What ready workers can end",
            "--ready",
            1,
            x=times,
            y=[round(one.able, 3) for one in shown],
            hovertemplate="%{y:.2f}/s possible<extra></extra>",
        ),
    ]


def _workers(run: Run, account: LoadAccount) -> list[Data]:
    shown, times = account.minutes, _times(run, account.minutes)
    target = _line(
        "Target, by the scaler",
        "--ink",
        2,
        x=times,
        y=[one.target for one in shown],
        hovertemplate="%{y} aimed at<extra></extra>",
    )
    target["line"] |= {"dash": "dash"}
    ready = _line(
        "Workers ready",
        "--ready",
        2,
        x=times,
        y=[one.ready for one in shown],
        fill="tozeroy",
        fillcolor="var(--ready-fill)",
        showlegend=False,
        hovertemplate="%{y} ready<extra></extra>",
    )
    return [ready, target]


def _waited(run: Run, account: LoadAccount) -> list[Data]:
    times = [ms(run, one.tick) for one in account.waits]
    most = _line(
        "Wait of 99 of 100",
        "--told",
        3,
        x=times,
        y=[one.most for one in account.waits],
        hovertemplate="99 of 100 within %{y:.0f} s<extra></extra>",
    )
    half = _line(
        "Wait of half",
        "--spot",
        3,
        x=times,
        y=[one.half for one in account.waits],
        hovertemplate="half within %{y:.0f} s<extra></extra>",
    )
    asked = _line(
        "Asked",
        "--ink",
        3,
        x=[ms(run, 0), ms(run, run.ticks)],
        y=[account.allowed] * 2,
        showlegend=False,
        hoverinfo="skip",
    )
    asked["line"] |= {"dash": "dash", "shape": "linear"}
    return [most, half, asked]


def _paid(run: Run, account: LoadAccount) -> list[Data]:
    begin = min(run.ledger.warm_up, len(account.minutes) - 1)
    shown = account.minutes[begin:]
    sums = list(accumulate(one.paid for one in shown))
    bill = _line(
        "Bill",
        "--spot",
        4,
        x=_times(run, shown),
        y=[round(one, 3) for one in sums],
        showlegend=False,
        fill="tozeroy",
        hovertemplate="$%{y:.2f} paid<extra></extra>",
    )
    peak = _line(
        "On-demand for the peak",
        "--on-demand",
        4,
        x=[ms(run, begin), ms(run, run.ticks)],
        y=[0, round(account.on_demand, 3)],
        hovertemplate="$%{y:.2f} on-demand for the peak<extra></extra>",
    )
    for one in (bill, peak):
        one["line"] |= {"shape": "linear"}
    return [bill, peak]


def _times(run: Run, minutes: Sequence[LoadMinute]) -> list[int]:
    return [ms(run, one.tick) for one in minutes]
