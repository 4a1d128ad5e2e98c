"""Fit the table of the policy ``expected-cost`` to all traces: ``python -m research.fit.deadline``.

A difference to the shipped table is an error; ``--write`` replaces the shipped table.

1. *Hazards*. The probability per minute to lose Spot, by the age of the run with Spot, and to regain it, by
   the age of the run without: events ÷ exposure in bins of age, with equal weight for every pool, shrunk
   towards the mean rate for small exposure.
2. *Decisions*. Backward induction over the time to the deadline. State: remaining compute, age bin of the
   pool, and idle, On-Demand, Spot, or Spot that boots for j more steps. The next bin follows with
   probability step ÷ width. An On-Demand start subtracts its restart overhead from the progress at once.
3. *Thresholds*. For each decision, age and remaining compute: the minimum slack at which it is optimal.

Prices: at 0.7 a table of that price costs 0.5 to 1.5 % less than that of 0.3, at 0.9 2 to 5 %.

No improvement on held-out traces: a finer step; ages observed from before the job's start; tables for two to
four classes of pools, weighted by their likelihood; stopping On-Demand to wait; scaled thresholds.

Fitting to the pool would gain little: a table fitted to the evaluated pool itself costs 1.078, 1.061, 1.052
and 1.054 × the clairvoyant at deadline ÷ compute 1.15, 1.3, 1.5 and 2; a table of the other folders 1.085,
1.066, 1.059 and 1.057 (20 starts per pool).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lambdas.core import deadline
from market.supply.trace import PoolTrace, load
from research.parts import needs
from research.simulation.deadline.pool import PoolRuns

Array = NDArray[np.float64]

UP_EDGES = (0, 10, 20, 30, 45, 60, 90, 120, 180, 300, 480, 720, 1200)
DOWN_EDGES = (0, 10, 20, 30, 45, 60, 90, 120, 180, 300, 480, 720)
COMPUTE = (
    *(10, 20, 30, 45, 60, 90, 120, 180, 240, 300, 360, 480),
    *(600, 720, 900, 1080, 1260, 1440, 1680, 1920, 2160, 2400, 2640, 2880),
)
SLACK = 2880
# Restart overhead and step of the induction, in minutes; the step divides the overhead.
STEPS = {3: 3, 6: 3, 10: 5, 15: 5, 20: 5, 30: 6, 45: 9, 60: 10}
SPOT_PRICES = (0.3, 0.7, 0.9)
# Weights of a pool and of the mean rate in each bin, in minutes of exposure.
EXPOSURE_MINUTES, SHRINK_MINUTES = 30_000, 120
NEVER = 1e9
TIE = 1e-6
TABLE = Path(deadline.__file__).with_name("thresholds.json")


@dataclass(frozen=True)
class Hazards:
    """Probabilities per minute by age bin: to lose Spot, to regain it."""

    lose: Array
    regain: Array


def fit_hazards(pools: Sequence[PoolRuns]) -> Hazards:
    """Return the hazards of the pools, without each pool's first run, whose age is unknown.

    They are rounded as in the shipped table, from which the thresholds must be reproducible.
    """
    return shipped_hazards(
        {
            "lose": [round(60 * rate, 4) for rate in _rates(pools, True, UP_EDGES).tolist()],
            "regain": [round(60 * rate, 4) for rate in _rates(pools, False, DOWN_EDGES).tolist()],
        }
    )


def shipped_hazards(per_hour: Mapping[str, Sequence[float]]) -> Hazards:
    """Return the hazards stored in a table."""
    return Hazards(np.asarray(per_hour["lose"]) / 60, np.asarray(per_hour["regain"]) / 60)


def _rates(pools: Sequence[PoolRuns], up: bool, edges: Sequence[int]) -> Array:
    events, exposure = np.zeros(len(edges)), np.zeros(len(edges))
    ends = (*edges[1:], math.inf)
    for pool in pools:
        lasted = [run.end - run.start for run in pool.runs[1:] if run.up == up]
        ended = [run.end - run.start for run in pool.runs[1:-1] if run.up == up]
        weight = EXPOSURE_MINUTES / max(1, sum(lasted))
        for index, (low, high) in enumerate(zip(edges, ends, strict=True)):
            exposure[index] += weight * sum(max(0.0, min(n, high) - low) for n in lasted)
            events[index] += weight * sum(low < n <= high for n in ended)
    mean = events.sum() / max(exposure.sum(), 1.0)
    return np.asarray((events + SHRINK_MINUTES * mean) / (exposure + SHRINK_MINUTES))


def solve(
    hazards: Hazards, restart_minutes: int, step: int, price: float, compute: int, slack: int
) -> tuple[dict[str, NDArray[np.bool_]], int]:
    """Return the decisions, each as [age bin, compute left, time left] in steps, and the slack in steps.

    All times in minutes. ``wait`` etc. as in ``lambdas.core.deadline.thresholds``.
    """
    boot, n, horizon = restart_minutes // step, compute // step, (compute + slack) // step
    lose, pass_up = _chances(hazards.lose, UP_EDGES, step)
    regain, pass_down = _chances(hazards.regain, DOWN_EDGES, step)

    def expect_up(up: Array, lost: Array) -> Array:
        return _expect(up, lost, lose, pass_up)

    def expect_down(down: Array, regained: Array) -> Array:
        return _expect(down, regained, regain, pass_down)

    ups, downs = len(UP_EDGES), len(DOWN_EDGES)
    idle_up, idle_down = _unfinished(ups, n), _unfinished(downs, n)
    # spot[j]: j more steps of boot; On-Demand counts its boot as remaining compute.
    spot = [_unfinished(ups, n) for _ in range(boot + 1)]
    demand_up, demand_down = _unfinished(ups, n + boot), _unfinished(downs, n + boot)
    names = {"wait": downs, "ripen": ups, "spot": ups, "move": ups}
    decisions = {name: np.zeros((bins, n + 1, horizon + 1), dtype=np.bool_) for name, bins in names.items()}
    for remaining in range(1, horizon + 1):
        running = _done(price * step + expect_up(_stepped(spot[0]), _stepped(idle_down)[0]))
        booting = [_done(price * step + expect_up(spot[j], idle_down[0])) for j in range(boot)]
        wait_up, wait_down = expect_up(idle_up, idle_down[0]), expect_down(idle_down, idle_up[0])
        stay_up = _done(step + expect_up(_stepped(demand_up), _stepped(demand_down)[0]))
        stay_down = _done(step + expect_down(_stepped(demand_down), _stepped(demand_up)[0]))
        spot = [running, *booting]
        start_up, start_down = _done(stay_up[:, boot:].copy()), _done(stay_down[:, boot:].copy())
        take = np.minimum(spot[boot], start_up)
        # At equal cost, the choice that finishes sooner and with fewer moves wins.
        decisions["wait"][:, :, remaining] = wait_down < start_down - TIE
        decisions["ripen"][:, :, remaining] = wait_up < take - TIE
        decisions["spot"][:, :, remaining] = spot[boot] < start_up - TIE
        decisions["move"][:, :, remaining] = spot[boot] < stay_up[:, : n + 1] - TIE
        idle_up, idle_down = np.minimum(wait_up, take), np.minimum(wait_down, start_down)
        demand_up, demand_down = stay_up, stay_down
        demand_up[:, : n + 1] = np.minimum(stay_up[:, : n + 1], spot[boot])
    return decisions, slack // step


def _chances(rates: Array, edges: Sequence[int], step: int) -> tuple[Array, Array]:
    widths = np.append(np.diff(np.asarray(edges, dtype=float)), np.inf)
    return 1 - np.exp(-rates * step), np.minimum(1.0, step / widths)


def _expect(stays: Array, changes: Array, chance: Array, passing: Array) -> Array:
    older = np.vstack([stays[1:], stays[-1:]])
    aged = (1 - passing)[:, None] * stays + passing[:, None] * older
    return chance[:, None] * changes[None, :] + (1 - chance)[:, None] * aged


def _unfinished(bins: int, steps: int) -> Array:
    return _done(np.full((bins, steps + 1), NEVER))


def _done(costs: Array) -> Array:
    costs[:, 0] = 0.0
    return np.minimum(costs, NEVER)


def _stepped(costs: Array) -> Array:
    """Return the costs with one step less of remaining compute."""
    return np.hstack([costs[:, :1], costs[:, :-1]])


def thresholds(hazards: Hazards, restart_minutes: int, price: float) -> dict[str, Any]:
    """Return one entry of the table's JSON: the minimum slack, in minutes, of each decision."""
    step = STEPS[restart_minutes]
    decisions, slack = solve(hazards, restart_minutes, step, price, max(COMPUTE), SLACK)
    entry: dict[str, Any] = {"spot_price": price, "changeover": restart_minutes}
    for name, right in decisions.items():
        entry[name] = [[_min_slack(row[c // step], c // step, slack, step) for c in COMPUTE] for row in right]
    return entry


def _min_slack(right: NDArray[np.bool_], compute: int, slack: int, step: int) -> int | None:
    wrong = np.flatnonzero(~right[compute : compute + slack])
    first = 0 if len(wrong) == 0 else int(wrong[-1]) + 1
    return first * step if first < slack else None


def table(
    pools: Sequence[PoolRuns],
    changeovers: Sequence[int],
    prices: Sequence[float] = SPOT_PRICES,
    solve_all: Callable[..., Iterable[dict[str, Any]]] = map,
) -> dict[str, Any]:
    """Return the table's JSON, fitted on the pools; ``solve_all`` is ``map``, perhaps over processes."""
    hazards = fit_hazards(pools)
    cells = [(hazards, restart_minutes, price) for price in prices for restart_minutes in changeovers]
    return {
        "grid": {"up": UP_EDGES, "down": DOWN_EDGES, "compute": COMPUTE},
        "hazards_per_hour": {
            name: [round(60 * float(rate), 4) for rate in rates] for name, rates in vars(hazards).items()
        },
        "tables": list(solve_all(thresholds, *zip(*cells, strict=True))),
    }


def difference(shipped: Any, fitted: Any, where: str = "the table") -> str:
    """Return the first difference between two tables' JSON as one line; empty without a difference."""
    if isinstance(shipped, list) and isinstance(fitted, list):
        shipped, fitted = dict(enumerate(shipped)), dict(enumerate(fitted))
    if not (isinstance(shipped, dict) and isinstance(fitted, dict)):
        return "" if shipped == fitted else f"{where} is {shipped}, the fit says {fitted}"
    for key in [*fitted, *shipped]:
        if key not in shipped or key not in fitted:
            return f"{where} / {key} is {'shipped' if key in shipped else 'fitted'} only"
    lines = (difference(shipped[key], fitted[key], f"{where} / {key}") for key in fitted)
    return next((line for line in lines if line), "")


def read_traces(root: Path) -> dict[str, PoolTrace]:
    """Return all traces below a folder, by relative path."""
    return {str(file.relative_to(root)): load([file])[0] for file in sorted(root.rglob("*.json"))}


def fingerprint(trace: PoolTrace) -> str:
    """Return a trace's identity, used to exclude evaluated traces from the fit."""
    return hashlib.sha256(json.dumps([trace.gap_seconds, trace.samples]).encode()).hexdigest()[:16]


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit on every trace below GPU_SPOT_TRACES; return 1 if the shipped table differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, default=TABLE, help="the shipped table")
    parser.add_argument("--write", action="store_true", help="ship the fitted table")
    options = parser.parse_args(arguments)
    traces = read_traces(needs.traces_to_fit_on())
    pools = [PoolRuns.of_trace(trace) for trace in traces.values()]
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as executor:
        raw = table(pools, tuple(STEPS), solve_all=executor.map)
    text = compact(
        {
            "source": "derived from skypilot-org/spot-traces by research/fit/deadline.py",
            "fitted_on": sorted(fingerprint(trace) for trace in traces.values()),
            **raw,
        }
    )
    if options.write:
        options.table.write_text(text, encoding="utf-8")
    differs = difference(json.loads(options.table.read_text(encoding="utf-8")), json.loads(text))
    if differs:
        print(f"{options.table}: {differs}", file=sys.stderr)
        return 1
    print(f"{options.table.name}: {len(raw['tables'])} tables as fitted on {len(traces)} traces")
    return 0


def compact(raw: Mapping[str, Any]) -> str:
    """Return JSON with a line for each row of numbers."""

    def write(value: Any, indent: str) -> str:
        inner = indent + " "
        if isinstance(value, dict):
            items = [f"{inner}{json.dumps(key)}: {write(item, inner)}" for key, item in value.items()]
            return "{\n" + ",\n".join(items) + f"\n{indent}}}"
        if isinstance(value, list | tuple) and any(isinstance(item, list | dict) for item in value):
            return "[\n" + ",\n".join(inner + write(item, inner) for item in value) + f"\n{indent}]"
        return json.dumps(value)

    return write(raw, "") + "\n"


if __name__ == "__main__":
    sys.exit(main())
