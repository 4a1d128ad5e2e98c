"""The part of ``make bench-http`` that compares its scaler with AWS's target tracking on requests per target.

HTTP servers that answer b requests at once in a + c · b seconds, under the loads of
`research.services.scaling`, two weeks each, on instances that launch at once and boot for `BOOT` seconds.
Target tracking is tuned by search on the first week: for each scale-in step the most requests per target that
keep the wait. It sees the last minute at once, and requests wait in one queue, as at a proxy; with a load
balancer alone they wait at the server that they were sent to. Ours sees the minute before, as the queue
watcher writes it, and not batches, but how many requests are at a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from contracts.group.scaling_settings import Bounds
from lambdas.core.scaling.batches import BatchTime
from research.parts.batched_scaling import BURST, PEAK, TIMES, Make, burst, burst_table
from research.parts.page import ratio_text, table_of
from research.simulation.load.batched import PlayedBatches, play_batches
from research.simulation.load.foresight import Foresight
from research.simulation.load.replay import MONDAY
from research.simulation.load.rules import Rule, TargetTracking
from research.simulation.load.scaler_rule import HttpRule
from research.simulation.load.shapes import DAY, SHAPES, LoadShape
from research.simulation.load.worlds import BOOT, MAX_SLOTS

DAYS: Final = 14
WAITS: Final = (60.0, 10.0)
"""Allowed waits until a server begins (seconds), of 99 of 100 requests."""
KNOB: Final = (1.0, 3.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0)
"""Values of our one parameter."""
STEPS: Final = (0.1, 0.3, 1.0)
"""Largest share of the instances that target tracking ends at once."""
SHARES: Final = (0.2, 1.2)
"""Bounds of the search: requests per target, as a share of what a server answers at most."""
PRECISION: Final = 0.02
FORESIGHT_SHARES: Final = (0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1)
"""Shares of what a server answers at most that the rule with foresight counts as its capacity."""
TARGET_RATIO: Final = 0.85
"""Ratio of the bills that is looked for."""
LATE_FACTOR: Final = 1.1
"""Of the allowed wait, up to which a rule counts as in time."""
ROWS: Final = ("rows", "knobs", "burst")
"""Keys of a result that are tables."""


def ours(wait: float, headroom: float = 0.0) -> Rule:
    """Return our rule."""
    return HttpRule(Bounds(wait, 1, MAX_SLOTS, headroom=headroom), BOOT)


def tracking(server: BatchTime, share: float, step: float) -> Rule:
    """Return target tracking on a share of the requests that a server answers in a minute at most."""
    return TargetTracking("requests", share * 60 * server.rate(server.max_size), step=step)


def played(arrivals: NDArray[np.int64], server: BatchTime, make: Make) -> PlayedBatches:
    """Replay a load."""
    return play_batches(arrivals, server, make(), BOOT, MAX_SLOTS)


def tuned(arrivals: NDArray[np.int64], server: BatchTime, wait: float) -> tuple[float, float]:
    """Return share and step of the cheapest target tracking that keeps the wait, by search."""
    best: tuple[float, float, float] | None = None
    for step in STEPS:
        low, high = SHARES
        cost = None
        while high - low > PRECISION:
            middle = (low + high) / 2
            outcome = played(arrivals, server, partial(tracking, server, middle, step))
            if outcome.p99(0, len(arrivals)) <= wait:
                low, cost = middle, outcome.cost(0, len(arrivals))
            else:
                high = middle
        if cost is not None and (best is None or cost < best[0]):
            best = cost, round(low, 3), step
    return (SHARES[0], STEPS[0]) if best is None else best[1:]


def compared(name: str, shape: LoadShape, days: int) -> list[dict[str, Any]]:
    """Return a row for each allowed wait: both rules on the second half of the days."""
    server = TIMES[name]
    arrivals = replace(shape, peak=PEAK * server.rate(server.max_size)).arrivals(days, 1)
    half, end, rate = days * DAY // 2, days * DAY, server.rate(server.max_size)

    def judged(make: Make) -> dict[str, float]:
        outcome = played(arrivals, server, make)
        return {"p99_wait": outcome.p99(half, end), "cost": outcome.cost(half, end)}

    knowing = [judged(partial(Foresight, arrivals, share * rate, BOOT, MONDAY)) for share in FORESIGHT_SHARES]
    knobs = {knob: judged(partial(ours, knob)) for knob in KNOB}
    rows = []
    for wait in WAITS:
        share, step = tuned(arrivals[:half], server, wait)
        its = judged(partial(tracking, server, share, step))
        no_later = _min_cost(knobs.values(), its["p99_wait"])
        best = _min_cost(knowing, its["p99_wait"])
        rows.append(
            {
                "time": name,
                "load": shape.name,
                "wait": wait,
                "share": share,
                "step": step,
                "tracking": its,
                "ours": knobs[wait],
                "cost_ratio_at_setting": knobs[wait]["cost"] / its["cost"],
                "cost_ratio": None if no_later is None else no_later / its["cost"],
                "work_ratio": float(arrivals[half:].mean()) / rate / its["cost"],
                "foresight_ratio": None if best is None else best / its["cost"],
            }
        )
    return [*rows, {"time": name, "load": shape.name, "knobs": knobs}]


def _min_cost(outcomes: Iterable[Mapping[str, float]], wait: float) -> float | None:
    """Return the least cost of those that wait no longer; None if there is none."""
    return min((outcome["cost"] for outcome in outcomes if outcome["p99_wait"] <= wait), default=None)


def bursts(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return both rules in a burst; target tracking as tuned for conversation at the shorter wait."""
    played_bursts = []
    for row in rows:
        if row.get("load") == SHAPES[0].name and row.get("wait") == WAITS[-1]:
            server = TIMES[row["time"]]
            rules: list[tuple[str, Make]] = [
                (f"gpu-spot, headroom {share:g}", partial(ours, WAITS[-1], share)) for share in (0.0, 1.0)
            ]
            rules.append(("target tracking", partial(tracking, server, row["share"], row["step"])))
            played_bursts += [
                {"time": row["time"], **burst(server, (name, make, 60))} for name, make in rules
            ]
    return played_bursts


def measure(days: int) -> dict[str, Any]:
    """Return all rows and their worst ratios."""
    with ProcessPoolExecutor() as pool:
        tasks = [pool.submit(compared, name, shape, days) for name, shape in product(TIMES, SHAPES)]
        results = [row for task in tasks for row in task.result()]
    rows = [row for row in results if "wait" in row]
    ratios = [row["cost_ratio"] for row in rows]
    return {
        "days": days,
        # Where no value of ours waits as short as target tracking, there is no ratio.
        "cost_ratio": None if None in ratios else max(ratios),
        "cost_ratio_mean": float(np.mean([ratio for ratio in ratios if ratio is not None])),
        "cost_ratio_at_setting": max(row["cost_ratio_at_setting"] for row in rows),
        "never_as_early": sum(ratio is None for ratio in ratios),
        "tracking_in_time": sum(row["tracking"]["p99_wait"] <= LATE_FACTOR * row["wait"] for row in rows),
        "ours_in_time": sum(row["ours"]["p99_wait"] <= LATE_FACTOR * row["wait"] for row in rows),
        "rows_at_target": sum(ratio is not None and ratio <= TARGET_RATIO for ratio in ratios),
        "rows": rows,
        "knobs": [row for row in results if "knobs" in row],
        "burst": bursts(rows),
    }


def section(result: Mapping[str, Any]) -> str:
    """Return this part's text."""
    columns = {
        "server, load, wait": "{time}, {load}, {wait:g} s",
        "tuned to": "{share:.2f}, in by {step:g}",
        "its p99 wait, cost": "{tracking[p99_wait]:.0f}, {tracking[cost]:.2f}",
        "ours": "{ours[p99_wait]:.0f}, {ours[cost]:.2f}",
        "cost ÷": "{cost_ratio_at_setting:.3f}",
        "no later ÷": "{no_later}",
        "work ÷": "{work_ratio:.3f}",
        "foresight ÷": "{foresight}",
    }
    rows = [
        {**row, "no_later": ratio_text(row["cost_ratio"]), "foresight": ratio_text(row["foresight_ratio"])}
        for row in result["rows"]
    ]
    text = (
        "## Scaling of HTTP services",
        f"HTTP servers that answer b requests at once in a + c · b seconds (coefficient of variation 0.2), "
        f"{result['days']} days of three loads, the second half counts; instances launch at once, boot for "
        f"{BOOT:g} s and cost the same; waits are until a server begins. Target tracking on "
        "`ALBRequestCountPerTarget`, tuned by search on the first half: the most requests per target, as a "
        "share of what a server answers at most, that keep the wait for 99 of 100 requests. It sees each "
        "minute at its end, and its requests wait in one queue, in its favor; ours sees the minute before. "
        "Cost ÷ its with our `waitSeconds` at the allowed wait, and at no longer a wait than its: at most "
        f"**{ratio_text(result['cost_ratio'])}**, on average {result['cost_ratio_mean']:.3f}; at most "
        f"{TARGET_RATIO} in {result['rows_at_target']} of {len(rows)} rows. In the second half its wait is "
        f"at most a tenth above the allowed one in {result['tracking_in_time']} rows, ours in "
        f"{result['ours_in_time']}. Bounds, of the same bill: the work alone in largest batches, and a rule "
        "that knows every arrival, at no longer a wait.",
        table_of(columns, rows),
        f"Ten minutes of {BURST:g} times a steady load of {PEAK:g} servers, after a day, with "
        f"{WAITS[-1]:g} s allowed:",
        burst_table(result["burst"]),
    )
    return "\n\n".join(text)
