"""Fit the age-dependent hazard that is the default policy's prior.

    GPU_SPOT_TRACES=… python research/fit/hazard.py

A pool that has been up for ``age`` loses Spot at ``SCALE / (OFFSET + age)``. Fitted by Poisson likelihood to
each region of the 0/1 traces alone and to all other regions, to show how well the figures generalize.
``UNKNOWN_AGE`` is the age at which that hazard equals that of a run at a random moment, 1 / (mean run).
The fit to all regions is shipped, the age rounded to ten minutes; a difference is an error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lambdas.core.capacity.history import DEFAULT_AGE_SECONDS, HAZARD_OFFSET_SECONDS, HAZARD_SCALE
from research.fit.market import Region, regions, runs
from research.parts import needs

_OFFSETS = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)


def fit(markets: Sequence[Region]) -> tuple[float, float, float]:
    """Return (scale, offset in minutes, unknown age in minutes) of the up-runs of some regions."""
    lengths = [
        (pool.gap_seconds / 60, hours * 60)
        for region in markets
        for pool in region
        for state, hours in runs(pool)
        if state
    ]
    best = (-math.inf, 0.0, 0.0)
    for offset in _OFFSETS:
        # ∫ 1/(offset + age) over all runs; a loss is observed half a gap late on average.
        ends = [max(gap / 2, length - gap / 2) for gap, length in lengths]
        exposure = sum(math.log1p(end / offset) for end in ends)
        scale = len(ends) / exposure
        likelihood = sum(math.log(scale / (offset + end)) for end in ends) - scale * exposure
        best = max(best, (likelihood, scale, offset))
    _, scale, offset = best
    mean = sum(length for _, length in lengths) / len(lengths)
    return scale, offset, scale * mean - offset


def main() -> None:
    """Print the fit for each region, for all others, and for all."""
    root = needs.traces_to_fit_on()
    markets = regions(root)
    print(f"{'':34}{'scale':>8}{'offset':>8}{'unknown age':>13}")
    for region in markets:
        other_markets = [market for market in markets if market is not region]
        name = region[0].name
        print(f"{name:34}" + "{:8.2f}{:8.1f}{:13.1f}".format(*fit([region])))
        print(f"{'  all others':34}" + "{:8.2f}{:8.1f}{:13.1f}".format(*fit(other_markets)))
    scale, offset, unknown_age = fit(markets)
    print(f"{'all':34}{scale:8.2f}{offset:8.1f}{unknown_age:13.1f}")
    fitted = (round(scale, 2), 60 * offset, 60 * round(unknown_age, -1))
    if fitted != (HAZARD_SCALE, HAZARD_OFFSET_SECONDS, DEFAULT_AGE_SECONDS):
        shipped = f"{HAZARD_SCALE:g}, {HAZARD_OFFSET_SECONDS:g} s, {DEFAULT_AGE_SECONDS:g} s"
        raise SystemExit(
            f"lambdas/core/capacity/history.py has {shipped}; fitted are {fitted}; both must be the same"
        )


if __name__ == "__main__":
    main()
