"""Fit the market model to the traces in ``GPU_SPOT_TRACES`` and compare the two.

    GPU_SPOT_TRACES=… python research/fit/market.py [--fit]

Without ``--fit`` it only compares the committed parameters with the traces. The fit has two steps: rates by
age band with a factor for each pool (Poisson, iterated), then the method of simulated moments for the
effects of regional weather. ``market/supply/drawn_market.py`` contains only the printed parameters.
"""

from __future__ import annotations

import argparse
import math
import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields, replace
from itertools import groupby
from pathlib import Path

from market.supply.drawn_market import AGE_BANDS, FITTED, Parameters, draw
from market.supply.trace import PoolTrace, load
from research.parts import needs

Region = tuple[PoolTrace, ...]


def regions(root: Path) -> list[Region]:
    """Return the 0/1 traces below ``root``, grouped by folder, region and instance type."""
    groups: dict[tuple[str, str, str], list[Path]] = defaultdict(list)
    for file in sorted(root.rglob("*.json")):
        zone, _, kind = file.stem.partition("_")
        groups[str(file.parent), zone[:-1], kind].append(file)
    loaded = [load(files) for files in groups.values()]
    return [region for region in loaded if all(max(pool.samples) <= 1 for pool in region)]


def runs(pool: PoolTrace) -> list[tuple[int, float]]:
    """Return the runs of a pool as (state, hours), without the truncated first and last."""
    lengths = ((state, sum(1 for _ in run)) for state, run in groupby(pool.samples))
    return [(state, length * pool.gap_seconds / 3600) for state, length in lengths][1:-1]


@dataclass(frozen=True)
class Moments:
    """The moments that the model must match: medians over regions of statistics of a region's pools."""

    availability: float
    availability_spread: float
    up_run: float
    down_run: float
    long_up_share: float
    correlation: float


def moments(markets: Sequence[Region]) -> Moments:
    """Return the moments of some regions; runs in hours."""
    means, ups, downs, longs = [], [], [], []
    correlations = []
    for region in markets:
        series = [pool.samples for pool in region]
        for pool in region:
            runs_of_pool = runs(pool)
            up = [h for state, h in runs_of_pool if state] or [0.0]
            means.append(statistics.fmean(pool.samples))
            ups.append(statistics.median(up))
            downs.append(statistics.median([h for state, h in runs_of_pool if not state] or [0.0]))
            longs.append(sum(h for h in up if h > 6) / max(1e-9, sum(up)))
        for i, a in enumerate(series):
            for b in series[:i]:
                n = min(len(a), len(b))
                if len(set(a[:n])) == len(set(b[:n])) == 2:
                    correlations.append(statistics.correlation(a[:n], b[:n]))
    return Moments(
        statistics.fmean(means),
        statistics.pstdev(means),
        statistics.median(ups),
        statistics.median(downs),
        statistics.fmean(longs),
        statistics.fmean(correlations),
    )


def rates(markets: Sequence[Region], state: int) -> tuple[tuple[float, ...], dict[str, float]]:
    """Return the rate per hour of leaving ``state`` by age band, and the log factor of each pool."""
    events: dict[tuple[str, int], float] = defaultdict(float)
    exposure: dict[tuple[str, int], float] = defaultdict(float)
    names = []
    for number, pool in enumerate(pool for region in markets for pool in region):
        name, gap, age, is_known = f"{number}:{pool.name}", pool.gap_seconds / 3600, 0.0, False
        names.append(name)
        for before, after in zip(pool.samples, pool.samples[1:], strict=False):
            if before == state and is_known:
                key = (name, bisect_right(AGE_BANDS, age) - 1)
                has_changed = before != after
                events[key] += has_changed
                exposure[key] += gap / 2 if has_changed else gap
            age = age + gap if before == after else 0.0
            is_known = is_known or before != after
    bands = range(len(AGE_BANDS))
    base, factor = [1.0] * len(AGE_BANDS), dict.fromkeys(names, 1.0)
    for _ in range(50):
        base = [
            sum(events[n, b] for n in names) / max(1e-9, sum(exposure[n, b] * factor[n] for n in names))
            for b in bands
        ]
        for n in names:
            factor[n] = (sum(events[n, b] for b in bands) + 1) / (
                sum(exposure[n, b] * base[b] for b in bands) + 1
            )
        middle = math.exp(statistics.fmean(map(math.log, factor.values())))
        factor = {n: f / middle for n, f in factor.items()}
    return tuple(base), {n: math.log(f) for n, f in factor.items()}


def first_step(markets: Sequence[Region]) -> Parameters:
    """Return the parameters without weather: rates by age, and spreads of pools and regions."""
    loss, hard = rates(markets, 1)
    back, soft = rates(markets, 0)
    hardness = [(hard[n] - soft[n]) / 2 for n in hard]
    total = statistics.pvariance(hardness)
    hardness_values = iter(hardness)
    by_region = [statistics.fmean([next(hardness_values) for _ in region]) for region in markets]
    regional = min(0.95, statistics.pvariance(by_region) / total)
    return Parameters(loss, back, math.sqrt(total), regional, 0.0, 4.0)


def simulated(parameters: Parameters, seeds: Iterable[int]) -> Moments:
    """Return the moments of drawn regions of three pools and 30 days."""
    return moments([draw(3, 720, seed, parameters) for seed in seeds])


def distance(target: Moments, simulated_moments: Moments) -> float:
    """Return the distance of two sets of moments: the sum of squared log ratios."""
    pairs = zip(astuple(target), astuple(simulated_moments), strict=True)
    return sum(math.log(max(b, 1e-3) / max(a, 1e-3)) ** 2 for a, b in pairs)


def second_step(start: Parameters, target: Moments, rounds: int = 3) -> Parameters:
    """Return the parameters with weather, by coordinate descent on six numbers."""
    free = {"loss": 1.0, "back": 1.0, "young": 1.0, "spread": 0.8, "weather": 0.8, "weather_hours": 4.0}

    def built(values: dict[str, float]) -> Parameters:
        # ``young`` changes the slope over the ages, which weather explains in part.
        bend = [values["young"] ** (1 - i / (len(AGE_BANDS) - 1)) for i in range(len(AGE_BANDS))]
        return replace(
            start,
            loss=tuple(r * values["loss"] * b for r, b in zip(start.loss, bend, strict=True)),
            back=tuple(r * values["back"] for r in start.back),
            spread=start.spread * values["spread"],
            tightness=values["weather"],
            tightness_hours=values["weather_hours"],
        )

    seeds = range(16)
    best, lowest = dict(free), distance(target, simulated(built(free), seeds))
    step = 1.5
    for _ in range(rounds):
        for name in free:
            for factor in (step, 1 / step):
                trial = {**best, name: best[name] * factor}
                score = distance(target, simulated(built(trial), seeds))
                if score < lowest:
                    best, lowest = trial, score
                    break
        step = math.sqrt(step)
    print(f"distance {lowest:.3f} with {best}")
    return built(best)


def show(traces: Moments, model: Moments) -> None:
    """Print the two side by side."""
    print(f"{'':22}{'traces':>8}{'model':>8}")
    for field in fields(Moments):
        print(f"{field.name:22}{getattr(traces, field.name):8.3f}{getattr(model, field.name):8.3f}")


def main() -> None:
    """Fit if requested, then compare on held-out seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fit", action="store_true", help="fit again; default: compare committed parameters")
    root = needs.traces_to_fit_on()
    markets, parameters = regions(root), FITTED
    target = moments(markets)
    if parser.parse_args().fit:
        parameters = second_step(first_step(markets), target)
        for field in fields(Parameters):
            value = getattr(parameters, field.name)
            print(field.name, [round(v, 3) for v in value] if isinstance(value, tuple) else round(value, 3))
    show(target, simulated(parameters, range(100, 140)))


if __name__ == "__main__":
    main()
