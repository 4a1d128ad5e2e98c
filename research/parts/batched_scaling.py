"""Scaling of workers that take batches, and bursts: measured parts of `research.services.scaling`.

A batch of b requests takes a + c · b seconds: `TIMES` has one with a much larger than c, one with both alike,
one with a much smaller. Instances launch at once, boot for `BOOT` seconds and cost the same, so that cost is
a mean number of instances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from contracts.group.scaling_settings import Bounds
from lambdas.core.scaling.batches import BatchTime
from research.parts.page import ratio_text, table_of
from research.simulation.load.batched import STEP_SECONDS, PlayedBatches, play_batches
from research.simulation.load.foresight import Foresight
from research.simulation.load.replay import MONDAY
from research.simulation.load.rules import Keda, Rule, TargetTracking, View
from research.simulation.load.scaler_rule import ScalerRule
from research.simulation.load.shapes import DAY, SHAPES, LoadShape
from research.simulation.load.worlds import BOOT, MAX_SLOTS

WAIT: Final = 60.0
TIMES: Final = {
    "8 + 0.25 b, b ≤ 16": BatchTime(8.0, 0.25, 16),
    "2 + 2 b, b ≤ 8": BatchTime(2.0, 2.0, 8),
    "0.2 + 4 b, b ≤ 8": BatchTime(0.2, 4.0, 8),
}
SINGLE: Final = BatchTime(0.0, 4.0, 1)
LOADS: Final = (3.2, 12.5)
"""Steady loads, in workers at their largest batch."""
PEAK: Final = 12.5
"""The same of a usual busy hour of the loads of `rivals_of`."""
FORESIGHT: Final = "perfect foresight"
KNOB: Final = (5.0, 15.0, 30.0, WAIT)
HEADROOMS: Final = (0.0, 0.5, 1.0, 2.0)
BURST: Final = 3.0
_BURST_SECONDS: Final = 600
_SAME_SHARE: Final = 0.02
"""Means of the targets that differ by at most this share are one fixed point."""

Make: TypeAlias = Callable[[], Rule]


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant number of workers."""

    workers: int

    def target(self, view: View) -> int:
        """See ``Rule``."""
        return self.workers


@dataclass(slots=True)
class Blind(ScalerRule):
    """Our rule without the table of batches: requests ended ÷ busy time is a worker's rate."""

    def target(self, view: View) -> int:
        """See ``Rule``."""
        return ScalerRule.target(self, replace(view, batches={}))


def ours(wait: float = WAIT, headroom: float = 0.0, kind: type[ScalerRule] = ScalerRule) -> ScalerRule:
    """Return our rule."""
    return kind(Bounds(wait, 1, MAX_SLOTS, headroom=headroom), BOOT)


def steady_arrivals(rate: float) -> NDArray[np.int64]:
    """Return the requests in every second of two days without a curve, bursts or silences."""
    return LoadShape("steady", rate, 1.0, 1.0, bursts=0.0, drift=0.0, silences=0).arrivals(2, 1)


def steady(name: str, load: float) -> dict[str, Any]:
    """Play a steady load from 1 worker and from the maximum, and search the least constant number."""
    time = TIMES[name]
    arrivals = steady_arrivals(load * time.rate(time.max_size))
    half, end = DAY, 2 * DAY
    row: dict[str, Any] = {"time": name, "load": load, "least": min_constant_workers(arrivals, time, half)}
    for kind in (ScalerRule, Blind):
        played = [
            play_batches(arrivals, time, ours(kind=kind), BOOT, MAX_SLOTS, first=first)
            for first in (1, MAX_SLOTS)
        ]
        means = [float(outcome.targets[half // STEP_SECONDS :].mean()) for outcome in played]
        is_same = max(means) - min(means) <= _SAME_SHARE * max(means)
        row["ours" if kind is ScalerRule else "blind"] = {
            "from_1": means[0],
            "from_max": means[1],
            "p99_wait": max(outcome.p99(half, end) for outcome in played),
            "ratio": max(means) / row["least"],
            "fixed_points": 1 if is_same else 2,
        }
    return row


def min_constant_workers(arrivals: NDArray[np.int64], time: BatchTime, half: int) -> int:
    """Return the least constant number of workers with which the second half keeps the wait."""
    workers = max(1, math.floor(float(arrivals.mean()) / time.rate(time.max_size)))
    while True:
        played = play_batches(arrivals, time, Constant(workers), BOOT, MAX_SLOTS, first=workers)
        if played.p99(half, len(arrivals)) <= WAIT or workers == MAX_SLOTS:
            return workers
        workers += 1


def rivals(time: BatchTime) -> list[tuple[str, str, Make, int]]:
    """Return family, setting, maker and polling interval of the rules that are tuned."""
    rate, size = time.rate(time.max_size), time.max_size
    keda: dict[str, list[tuple[str, float]]] = {
        f"rate, {share:g} of the largest": [("rate", share * rate)]
        for share in (0.7, 0.8, 0.9, 0.95, 1.0, 1.1)
    }
    for share in (0.5, 0.85, 1.2, 2.0):
        value = round(share * size, 2)
        keda[f"length with in-flight, {value:g}"] = [("unacknowledged", value)]
    keda[f"length, {size:g}"] = [("length", float(size))]
    for share, batches in product((0.8, 0.9, 1.0, 1.1), (0.5, 2.0)):
        name = f"rate, {share:g} of the largest, and length, {batches * size:g}"
        keda[name] = [("rate", share * rate), ("length", batches * size)]
    settings: list[tuple[str, str, Make, int]] = [
        ("KEDA", name, partial(Keda, triggers), 30) for name, triggers in keda.items()
    ]
    for share, step in product((0.1, 1.0), (0.1, 1.0)):
        value = round(share * size, 2)
        rule = partial(TargetTracking, "backlog", value, step=step)
        settings.append(("target tracking", f"backlog {value:g}, in by {step:g}", rule, 60))
    for value in (0.7, 0.8, 0.9):
        settings.append(("target tracking", f"GPU use {value:g}", partial(TargetTracking, "gpu", value), 60))
    return settings


def foresights(arrivals: NDArray[np.int64], time: BatchTime) -> list[tuple[str, str, Make, int]]:
    """Return the same of the rule that knows the load."""
    rate = time.rate(time.max_size)
    return [
        (FORESIGHT, f"{share:g} of the largest", partial(Foresight, arrivals, share * rate, BOOT, MONDAY), 60)
        for share in (0.9, 0.95, 1.0, 1.05, 1.1)
    ]


def rivals_of(name: str, shape: LoadShape, days: int) -> dict[str, Any]:
    """Tune the other rules on the first half of the days, and play them and ours on the other."""
    time = TIMES[name]
    arrivals = replace(shape, peak=PEAK * time.rate(time.max_size)).arrivals(days, 1)
    half, end = days * DAY // 2, days * DAY

    def judged(make: Make, poll: int) -> dict[str, float]:
        played = play_batches(arrivals, time, make(), BOOT, MAX_SLOTS, poll_seconds=poll)
        return {
            "p99_wait": played.p99(half, end),
            "cost": played.cost(half, end),
            "p99_trained": played.p99(0, half),
        }

    best: dict[str, dict[str, Any]] = {}
    trained: dict[str, list[tuple[bool, float, float, str, Make, int]]] = {}
    for family, setting, make, poll in [*rivals(time), *foresights(arrivals, time)]:
        played = play_batches(arrivals[:half], time, make(), BOOT, MAX_SLOTS, poll_seconds=poll)
        wait, cost = played.p99(0, half), played.cost(0, half)
        is_late = wait > WAIT
        key = (is_late, wait if is_late else cost, cost)
        trained.setdefault(family, []).append((*key, setting, make, poll))
    for family, rows in trained.items():
        *_, setting, make, poll = min(rows, key=lambda row: row[:3])
        best[family] = {"setting": setting, **judged(make, poll)}
    knobs = {knob: judged(partial(ours, knob), 60) for knob in KNOB}
    for row in best.values():
        no_later = [our["cost"] for our in knobs.values() if our["p99_wait"] <= row["p99_wait"]]
        row["cost_ratio"] = knobs[WAIT]["cost"] / row["cost"]
        row["cost_ratio_no_later"] = min(no_later) / row["cost"] if no_later else None
    work = float(arrivals[half:].mean()) / time.rate(time.max_size)
    return {"time": name, "load": shape.name, "work": work, "ours": knobs, "best": best}


def burst(time: BatchTime, setting: tuple[str, Make, int]) -> dict[str, Any]:
    """Play a steady day, then ten minutes of three times its load and an hour of the usual."""
    name, make, poll = setting
    rate = PEAK * time.rate(time.max_size)
    arrivals = steady_arrivals(rate)[: DAY + 7200]
    begin, end = DAY, DAY + _BURST_SECONDS
    chance = np.random.default_rng(5)
    arrivals[begin:end] += chance.poisson((BURST - 1) * rate, _BURST_SECONDS)
    played: PlayedBatches = play_batches(arrivals, time, make(), BOOT, MAX_SLOTS, poll_seconds=poll)
    return {
        "rule": name,
        "p99_wait": played.p99(begin, end),
        "p99_usual": played.p99(DAY // 2, DAY),
        "cost_usual": played.cost(DAY // 2, DAY),
        "cost_burst": played.cost(begin, DAY + 7200),
    }


def bursts(best: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the table of bursts; ``best`` are the tuned settings by family, of both alike batches."""
    rows = []
    for name, time in (("one request of 4 s", SINGLE), ("2 + 2 b, b ≤ 8", TIMES["2 + 2 b, b ≤ 8"])):
        settings: list[tuple[str, Make, int]] = [
            (f"gpu-spot, headroom {share:g}", partial(ours, WAIT, share), 60) for share in HEADROOMS
        ]
        tuned = [row for row in rivals(TIMES["2 + 2 b, b ≤ 8"]) if best.get(row[0]) == row[1]]
        if time is SINGLE:
            tuned = [row for row in rivals(SINGLE) if row[1] in _SINGLE_SETTINGS]
        settings += [(f"{family}, {setting}", make, poll) for family, setting, make, poll in tuned]
        rows += [{"time": name, **burst(time, setting)} for setting in settings]
    return rows


_SINGLE_SETTINGS: Final = ("rate, 0.8 of the largest", "length with in-flight, 0.85", "GPU use 0.8")
"""Near what the other rules are tuned to under loads of one request per worker, on the Spot market."""


def measure(days: int) -> dict[str, Any]:
    """Return all parts, of the first two loads."""
    with ProcessPoolExecutor() as pool:
        steadies = [pool.submit(steady, name, load) for name, load in product(TIMES, LOADS)]
        compared = [pool.submit(rivals_of, name, shape, days) for name, shape in product(TIMES, SHAPES[:2])]
        rows = [future.result() for future in steadies]
        against = [future.result() for future in compared]
    alike = next(row for row in against if row["time"] == "2 + 2 b, b ≤ 8")
    return {
        "batched_ratio": max(row["ours"]["ratio"] for row in rows),
        "batched_p99": max(row["ours"]["p99_wait"] for row in rows),
        "fixed_points": max(row["ours"]["fixed_points"] for row in rows),
        "fixed_points_blind": max(row["blind"]["fixed_points"] for row in rows),
        "steady": rows,
        "batched": against,
        "burst": bursts({family: row["setting"] for family, row in alike["best"].items()}),
    }


def burst_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of what `burst` measured: waits in seconds, costs in workers."""
    columns = {
        "rule": "{time}: {rule}",
        "p99 wait in the burst": "{p99_wait:.0f}",
        "before": "{p99_usual:.0f}",
        "cost before": "{cost_usual:.2f}",
        "cost with burst": "{cost_burst:.2f}",
    }
    return table_of(columns, rows)


def text(result: Mapping[str, Any]) -> list[str]:
    """Return the paragraphs and tables of the page."""
    steady_columns = {
        "batch, seconds": "{time}",
        "load": "{load:g}",
        "least": "{least}",
        "ours, from 1 and max": "{ours[from_1]:.2f}, {ours[from_max]:.2f}",
        "p99 wait": "{ours[p99_wait]:.0f}",
        "without the table": "{blind[from_1]:.2f}, {blind[from_max]:.2f}",
    }
    compared_columns = {
        "batch, load": "{time}, {load}",
        "tuned rule": "{family}: {setting}",
        "its wait, cost": "{p99_wait:.0f}, {cost:.2f}",
        "ours": "{mine[p99_wait]:.0f}, {mine[cost]:.2f}",
        "cost ÷": "{cost_ratio:.3f}",
        "no later ÷": "{no_later}",
    }
    compared = [
        {
            **its,
            "time": row["time"],
            "load": row["load"],
            "family": family,
            "mine": row["ours"][WAIT],
            "no_later": ratio_text(its["cost_ratio_no_later"]),
        }
        for row in result["batched"]
        for family, its in row["best"].items()
    ]
    keda = [row["best"]["KEDA"]["cost"] for row in result["batched"]]
    works = [row["work"] / cost for row, cost in zip(result["batched"], keda, strict=True)]
    bounds = [
        row["best"][FORESIGHT]["cost"] / cost for row, cost in zip(result["batched"], keda, strict=True)
    ]
    return [
        "### Batches and bursts",
        "A batch of b requests takes a + c · b seconds (coefficient of variation 0.2), with instances that "
        f"launch at once, boot for {BOOT:g} s and cost the same; waits are until a worker begins. Steady "
        "loads, two days, the second counts: the least constant number of workers that keeps "
        f"{WAIT:g} s for 99 of 100 requests, by search; our mean target from 1 worker and from {MAX_SLOTS}; "
        "and that of the same rule without the table of batches.",
        table_of(steady_columns, result["steady"]),
        "Two weeks; KEDA polls each 30 s, its cooldown is 300 s. Of each family the setting that is cheapest "
        f"for {WAIT:g} s on the first week, judged on the second, as p99 wait and cost. Cost ÷ theirs with "
        f"{WAIT:g} s allowed, and at no longer a wait than theirs. The bounds, of tuned KEDA's bill: the "
        f"work alone, in largest batches, is {min(works):.2f} to {max(works):.2f} of it; a rule that knows "
        f"every arrival ({FORESIGHT}) pays {min(bounds):.2f} to {max(bounds):.2f}.",
        table_of(compared_columns, compared),
        f"Ten minutes of {BURST:g} times a steady load of {PEAK:g} workers, after a day. `headroom` is what "
        "the workers hold beyond the load; the costs are those of the half day before, and of the two hours "
        "from the burst on. The other rules have the settings tuned above, for single requests settings near "
        "those tuned in the first table.",
        burst_table(result["burst"]),
    ]
