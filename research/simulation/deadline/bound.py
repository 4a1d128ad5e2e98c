"""The clairvoyant bound: the lowest cost of a job with knowledge of the pool's future.

Dynamic programming over runs of the pool, not over ticks. ``F[mode][p]`` is the least cost at which the job
holds ``mode`` with progress ``p`` ticks at a moment; a start subtracts its restart overhead from ``p`` at
once, so ``p`` begins at −overhead. (An instance terminated while it boots would be charged too much; that is
never better than not starting it.) In one run of the pool it is enough to consider, by exchange of ticks:

- without Spot: On-Demand throughout, or for a stretch at the beginning (then idle) or at the end;
- with Spot: On-Demand throughout, at the end after idling, or at the beginning before idling; or Spot for
  a stretch at the beginning or at the end. Spot in place of an On-Demand tick of the same run is cheaper, and
  a move to On-Demand can wait for the end of the run.

A stretch of free length is a sliding minimum. ``tests/deadline`` compares with the plain search over ticks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from research.simulation.deadline.pool import PoolRuns

Costs = NDArray[np.float64]


def clairvoyant(
    pool: PoolRuns, start: int, restart_ticks: int, jobs: Iterable[tuple[int, int]], spot_price: float
) -> Mapping[tuple[int, int], float]:
    """Return the minimum cost, in On-Demand ticks, of each job (compute, deadline) that starts at ``start``.

    All times in ticks. A job that cannot be done costs ``inf``. Raises ``ValueError`` if the pool ends
    before a deadline.
    """
    pending = sorted(set(jobs), key=lambda job: job[1])
    if not pending or start < 0 or start + pending[-1][1] > pool.ticks:
        raise ValueError(f"{len(pending)} jobs from tick {start} do not fit into {pool.ticks} ticks")
    max_compute = max(compute for compute, _ in pending)
    idle, spot, on_demand = (np.full(restart_ticks + max_compute + 1, np.inf) for _ in range(3))
    idle[restart_ticks] = 0.0
    min_costs: dict[tuple[int, int], float] = {}
    now, index = start, pool.index(start)
    for job in pending:
        compute, end = job[0], start + job[1]
        while now < end:
            run = pool.runs[index]
            stop = min(run.end, end)
            if run.up:
                idle, spot, on_demand = _with_spot(
                    idle, spot, on_demand, stop - now, restart_ticks, spot_price
                )
            else:
                idle, spot, on_demand = _without_spot(idle, spot, on_demand, stop - now, restart_ticks)
            now = stop
            index += now == run.end
        min_costs[job] = float(min(costs[restart_ticks + compute] for costs in (idle, spot, on_demand)))
    return min_costs


def _without_spot(idle: Costs, spot: Costs, on_demand: Costs, n: int, d: int) -> tuple[Costs, Costs, Costs]:
    rest = np.minimum(np.minimum(idle, spot), on_demand)
    fresh = _stretch(_start(rest, d), n, 1.0)
    ended = np.minimum(np.minimum(rest, fresh), _stretch(on_demand, n, 1.0))
    return ended, np.full_like(idle, np.inf), np.minimum(_shift(on_demand, n) + n, fresh)


def _with_spot(
    idle: Costs, spot: Costs, on_demand: Costs, n: int, d: int, price: float
) -> tuple[Costs, Costs, Costs]:
    rest = np.minimum(np.minimum(idle, spot), on_demand)
    started = _start(rest, d)
    fresh_spot = _stretch(started, n, price)
    ended = np.minimum(
        np.minimum(rest, fresh_spot), np.minimum(_stretch(on_demand, n, 1.0), _stretch(spot, n, price))
    )
    return (
        ended,
        np.minimum(_shift(spot, n) + price * n, fresh_spot),
        np.minimum(_shift(on_demand, n) + n, _stretch(started, n, 1.0)),
    )


def _shift(costs: Costs, by: int) -> Costs:
    """Return the costs with ``by`` more progress."""
    shifted = np.full_like(costs, np.inf)
    if by < len(costs):
        shifted[by:] = costs[: len(costs) - by]
    return shifted


def _start(costs: Costs, restart_ticks: int) -> Costs:
    """Return the costs after the start of an instance, which subtracts ``changeover`` from the progress."""
    started = np.full_like(costs, np.inf)
    started[: len(costs) - restart_ticks] = costs[restart_ticks:]
    return started


def _stretch(costs: Costs, max_units: int, price: float) -> Costs:
    """Return min over 0 ≤ k ≤ ``most`` of costs[p − k] + price × k, by doubling the window."""
    slope = price * np.arange(len(costs))
    lowest = costs - slope
    window = 1
    while window < min(max_units + 1, len(costs)):
        step = min(window, max_units + 1 - window)
        lowest[step:] = np.minimum(lowest[step:], lowest[:-step])
        window += step
    return np.asarray(lowest + slope)
