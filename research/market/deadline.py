"""Training jobs with a deadline: every policy against the clairvoyant bound (``make bench-deadline``).

Single zones, compute 24 and 48 h, restart overhead 6 and 20 min, deadline ÷ compute 1.15 to 2, spread starts.
First in the world as declared, then in the worlds of ``parts.deadline.uncertainty``, then some jobs with the
deployed controller (``parts.deadline.stack``). Traces come from the folder GPU_SPOT_TRACES; without it, pools
are drawn from the fitted hazards. No table is evaluated on a pool that it was fitted to: the product's table
is used if the trace was not in its fit, else one fitted to the traces of the other folders.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from statistics import fmean
from typing import Any

from market.supply.trace import PoolTrace
from research.fit.deadline import DOWN_EDGES, SPOT_PRICES, TABLE, UP_EDGES, fingerprint, read_traces, table
from research.parts import needs, page
from research.parts.cells import cells as worlds_of
from research.parts.deadline import stack, uncertainty
from research.parts.deadline.jobs import SPOT_PRICE, Task
from research.parts.run import parser_of, write
from research.simulation.deadline.measure import Sum, measure, starts_in
from research.simulation.deadline.policies import BASELINES, DEFAULT, NAMES
from research.simulation.deadline.pool import PoolRuns

RESTART_MINUTES = (6, 20)
FULL = 40
"""Minimum number of start times per trace for published figures."""
STARTS_A_DOUBT = 50
"""Number of starts in the declared world for each in an uncertain world."""
DRAWN = {"poor": (1.6, 0.7), "middling": (1.0, 1.0), "good": (0.6, 1.5)}
DRAWN_DAYS, DRAWN_GAP = 30, 300
STACK_POOLS = 8
"""Number of pools with jobs through the controller, one for each deadline ÷ compute."""


@dataclass(frozen=True)
class Cell:
    """The result of one policy in one pool at one deadline ÷ compute."""

    pool: str
    policy: str
    ratio: float
    sum: Sum


def run(task: Task) -> list[Cell]:
    """Replay one task."""
    pool = PoolRuns.of_trace(task.trace)
    jobs = task.jobs(pool)
    if not jobs:
        return []
    policies = task.policies(NAMES)
    starts = starts_in(pool, max(job.deadline for _, job in jobs), task.starts)
    sums = measure(pool, [job for _, job in jobs], policies, starts)
    return [Cell(task.name, name, ratio, sums[job, name]) for ratio, job in jobs for name in policies]


def draw(name: str, seed: int) -> PoolTrace:
    """Draw a pool from the fitted hazards, with a random factor around the average."""
    raw = json.loads(TABLE.read_text(encoding="utf-8"))["hazards_per_hour"]
    lose, regain = DRAWN[name]
    samples: list[int] = []
    rng, up = random.Random(f"{name}/{seed}"), seed % 2 == 0
    while len(samples) < DRAWN_DAYS * 86400 // DRAWN_GAP:
        edges, rates, factor = (UP_EDGES, raw["lose"], lose) if up else (DOWN_EDGES, raw["regain"], regain)
        age = 0
        while True:
            hazard = factor * rates[max(i for i, edge in enumerate(edges) if edge * 60 <= age)] / 3600
            age += DRAWN_GAP
            samples.append(int(up))
            if rng.random() < hazard * DRAWN_GAP:
                break
        up = not up
    return PoolTrace(f"{name}-{seed}", float(DRAWN_GAP), tuple(samples))


def tasks(
    traces: Mapping[str, PoolTrace], starts: int, prices: Sequence[float], executor: ProcessPoolExecutor
) -> list[Task]:
    """Return the tasks for these Spot prices, each with a table that was not fitted to its trace."""
    fitted_on = set(json.loads(TABLE.read_text(encoding="utf-8"))["fitted_on"])
    groups = grouped(traces)
    folds = sorted({groups[name] for name, trace in traces.items() if fingerprint(trace) in fitted_on})
    other_traces = {fold: [t for name, t in traces.items() if groups[name] != fold] for fold in folds}
    fitted = dict(zip(folds, executor.map(_fit, other_traces.values(), repeat(prices)), strict=True))
    return [
        Task(
            name,
            trace,
            restart_minutes,
            starts,
            fitted[groups[name]] if fingerprint(trace) in fitted_on else None,
        )
        for name, trace in traces.items()
        for restart_minutes in RESTART_MINUTES
    ]


def grouped(traces: Iterable[str]) -> dict[str, str]:
    """Return the fold of each trace: its folder; with one folder its region; with one region the trace."""
    by_folder = {name: str(Path(name).parent) for name in traces}
    by_region = {name: Path(name).name.split("_")[0][:-1] for name in by_folder}
    for by in (by_folder, by_region):
        if len(set(by.values())) > 1:
            return by
    return {name: name for name in by_folder}


def _fit(traces: Sequence[PoolTrace], prices: Sequence[float]) -> Mapping[str, Any]:
    if not traces:
        raise ValueError(
            "the table was fitted on the only trace given, a second one is needed to judge it by"
        )
    return table([PoolRuns.of_trace(trace) for trace in traces], RESTART_MINUTES, prices)


def summary(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return the figures of ``deadline.json``; in means every pool has equal weight."""
    sums: dict[tuple[str, str, float], list[Sum]] = defaultdict(list)
    for cell in cells:
        sums[cell.policy, cell.pool, cell.ratio].append(cell.sum)
    cost = {key: sum(s.cost for s in of) for key, of in sums.items()}
    bound = {key[1:]: sum(s.bound for s in of) for key, of in sums.items() if key[0] == DEFAULT}
    cost |= {("clairvoyant", *key): total for key, total in bound.items()}
    ratios = sorted({ratio for _, ratio in bound})

    def by_ratio(name: str, base: str = "clairvoyant") -> dict[str, float]:
        quotients = {r: [cost[name, p, r] / cost[base, p, r] for p, at in bound if at == r] for r in ratios}
        return {f"{ratio}": round(fmean(several), 4) for ratio, several in quotients.items()}

    worst = max((cost[DEFAULT, p, r] / min(cost[name, p, r] for name in BASELINES), p, r) for p, r in bound)
    policies = {name: by_ratio(name) for name in NAMES}
    against = {
        name: {f"{r}": round(policies[DEFAULT][f"{r}"] / policies[name][f"{r}"], 4) for r in ratios}
        for name in BASELINES
    }
    ours = [cell.sum for cell in cells if cell.policy == DEFAULT]
    return {
        "policy": DEFAULT,
        "pools": len({pool for pool, _ in bound}),
        "replays": sum(s.jobs for s in ours),
        "misses": sum(s.misses for s in ours),
        "misses_of_baselines": sum(cell.sum.misses for cell in cells if cell.policy != DEFAULT),
        "cost_vs_clairvoyant": policies[DEFAULT],
        "cost_vs_uniform_progress": against["uniform-progress"],
        "worst_vs_best_baseline": round(worst[0], 4),
        "worst_at": {"pool": worst[1], "ratio": worst[2]},
        "clairvoyant_vs_on_demand": by_ratio("clairvoyant", "on-demand"),
        "policies_vs_clairvoyant": policies,
        "cost_vs_baselines": against,
    }


def through_the_stack(traces: Mapping[str, PoolTrace], pools: int) -> dict[str, Any]:
    """Return the figures of jobs through the controller in so many of these pools; none for 0."""
    if pools < 1:
        return {}
    names = sorted(traces)
    chosen = [traces[names[k * len(names) // pools]] for k in range(min(pools, len(names)))]
    chosen += [draw(name, seed) for seed in (3, 4, 5) for name in DRAWN][: pools - len(chosen)]
    context = multiprocessing.get_context("spawn")  # deployment and clock are global to a process
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context, max_tasks_per_child=1) as executor:
        jobs = list(executor.map(stack.play, stack.scenarios(chosen)))
    return stack.figures(jobs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay, print the table and write ``deadline.json``."""
    parser = parser_of(__doc__, "deadline", docs=True)
    parser.add_argument("--starts", type=int, default=FULL, help=f"start times a trace (default {FULL})")
    parser.add_argument("--cells", type=int, help="only so many worlds of the grid (default all)")
    parser.add_argument(
        "--stack-pools", type=int, default=STACK_POOLS, help="pools of jobs through the controller, 0: none"
    )
    options = parser.parse_args(arguments)
    if options.starts < 1:
        parser.error(f"--starts must be at least 1, not {options.starts}")
    began, root = time.monotonic(), needs.traces_or_model()
    traces = (
        read_traces(root)
        if root
        else {f"{name}/{name}-{seed}": draw(name, seed) for name in DRAWN for seed in (1, 2)}
    )
    if not traces:
        parser.error(f"GPU_SPOT_TRACES must be a folder with .json traces, not {str(root)!r}")
    worlds = worlds_of(uncertainty.AXES, uncertainty.TOGETHER)[: options.cells]
    prices = SPOT_PRICES if any("spot price" in world for world in worlds) else (SPOT_PRICE,)
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as executor:
        work = tasks(traces, options.starts, prices, executor)
        cells = [cell for result in executor.map(run, work) for cell in result]
        doubted = [
            replace(task, starts=math.ceil(options.starts / STARTS_A_DOUBT))
            for task in work
            if task.restart_minutes == uncertainty.RESTART_TIME_MINUTES
        ]
        grid = uncertainty.grid(doubted, worlds, executor.map)
    through = through_the_stack(traces, options.stack_pools)
    short = sorted(set(traces) - {cell.pool for cell in cells})
    for name in short:
        print(f"{name}: shorter than the shortest deadline, left out")
    if not cells:
        parser.error("every trace is shorter than the shortest deadline")
    tables = {"fitted on other folders" if task.table else "the product's" for task in work}
    figures = {
        "source": "traces" if root else "drawn from the fitted hazards",
        "table": " and ".join(sorted(tables)),
        "starts_per_pool": options.starts,
        **summary(cells),
        "grid": grid,
        **through,
        "seconds": round(time.monotonic() - began, 1),
    }
    write(options.out, figures)
    text = page_part(figures)
    print(text)
    if root and options.starts >= FULL:
        page.replace_part(options.docs, "deadline", text)
    return 0


def page_part(figures: Mapping[str, Any]) -> str:
    """Return the benchmark's part of the page."""
    ratios = list(figures["cost_vs_clairvoyant"])
    rows = [
        [f"**{name}**" if name == DEFAULT else name, *(f"{row[ratio]:.3f}" for ratio in ratios)]
        for name, row in figures["policies_vs_clairvoyant"].items()
    ]
    rows.append(
        ["*clairvoyant ÷ on-demand*", *(f"{figures['clairvoyant_vs_on_demand'][r]:.3f}" for r in ratios)]
    )
    below = [
        [name, *(f"{1 - row[ratio]:.1%}" for ratio in ratios)]
        for name, row in figures["cost_vs_baselines"].items()
        if name.startswith("uniform")
    ]
    return "\n\n".join(
        (
            "## Training jobs under a deadline",
            f"{figures['pools']} single zones × {figures['starts_per_pool']} starts × compute 24 and 48 h × "
            f"restart overhead 6 and 20 min: {figures['replays']:,} replays of `{DEFAULT}`, "
            f"{figures['misses']} deadlines missed. Its table is {figures['table']} than the one it is "
            "judged on. Cost ÷ clairvoyant optimum, by deadline ÷ compute:",
            page.table(["policy", *ratios], rows),
            "Uniform Progress (NSDI'24) in three readings: the paper's text with hysteresis, with an "
            "immediate return to Spot, and keeping On-Demand while there is no Spot, as its authors' "
            f"simulator does. `{DEFAULT}` costs less by:",
            page.table(["reading", *ratios], below),
            f"On its worst trace it costs {figures['worst_vs_best_baseline']:.3f} × the best baseline.",
            uncertainty.page_part(figures["grid"]),
            *([stack.page_part(figures)] if "stack_jobs" in figures else []),
        )
    )


if __name__ == "__main__":
    sys.exit(main())
