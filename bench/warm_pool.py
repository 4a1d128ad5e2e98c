"""Replay every warm pool size on all scenarios: what the size that a stack takes costs against the best one.

    GPU_SPOT_TRACES=… python -m bench.warm_pool [--out FILE] [--seeds 2] [--docs docs]

A size is judged by what its user pays and misses: the run, the pool on top of it, and the shortage at the
price that ``shortageCost`` sets. Without the traces the fitted model is replayed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from bench._page import replace_part, table
from bench._scenarios import Scenario, chosen, parser
from gpu_spot.market.comparison.contenders import at
from gpu_spot.market.comparison.runs import play
from gpu_spot.market.rules import Rules
from gpu_spot.market.supply.spot import SpotMarket
from lambdas.core import warm_pool

SHORTAGE_COSTS = (1.2, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)


@dataclass(frozen=True)
class Verdict:
    """The chosen size on one scenario against all others, by ``cost + standby + shortageCost × shortage``.

    ``chosen_vs_best``, ``none_vs_best`` and ``all_vs_best`` are ratios; ``standby`` is what the chosen pool
    costs as a fraction of all-on-demand; ``availability`` is with it, ``availability_cold`` without any.
    """

    scenario: str
    shortage_cost: float
    target: int
    chosen: int
    best: int
    chosen_vs_best: float
    none_vs_best: float
    all_vs_best: float
    standby: float
    availability: float
    availability_cold: float


def judge(task: tuple[Scenario, float, int]) -> Verdict:
    """Replay one scenario at one shortage cost with every size, over seeds from 1 on."""
    scenario, shortage_cost, seeds = task
    accounts = []
    for size in range(scenario.target + 1):
        runs = []
        for seed in range(1, seeds + 1):
            rules = Rules(seed=seed, warm_instances=size)
            market = SpotMarket(scenario.traces, rules, scenario.pool_size)
            ledger = play(market, rules, at(shortage_cost), scenario.target)
            runs.append((ledger.cost, ledger.standby_cost, ledger.availability))
        accounts.append([fmean(column) for column in zip(*runs, strict=True)])
    worth = [cost + standby + shortage_cost * (1 - ready) for cost, standby, ready in accounts]
    chosen = warm_pool.size(scenario.target, 0, 100, len(scenario.traces), shortage_cost)
    least = min(worth)
    return Verdict(
        scenario=scenario.name,
        shortage_cost=shortage_cost,
        target=scenario.target,
        chosen=chosen,
        best=worth.index(least),
        chosen_vs_best=worth[chosen] / least,
        none_vs_best=worth[0] / least,
        all_vs_best=worth[-1] / least,
        standby=accounts[chosen][1],
        availability=accounts[chosen][2],
        availability_cold=accounts[0][2],
    )


def summarise(verdicts: Sequence[Verdict]) -> list[dict[str, float]]:
    """Return by shortage cost the mean and worst ratios over the scenarios."""
    rows = []
    for cost in dict.fromkeys(v.shortage_cost for v in verdicts):
        here = [v for v in verdicts if v.shortage_cost == cost]
        rows.append(
            {
                "shortage_cost": cost,
                "share_of_target": fmean(v.chosen / v.target for v in here),
                "chosen_vs_best": fmean(v.chosen_vs_best for v in here),
                "worst_chosen_vs_best": max(v.chosen_vs_best for v in here),
                "none_vs_best": fmean(v.none_vs_best for v in here),
                "all_vs_best": fmean(v.all_vs_best for v in here),
                "standby": fmean(v.standby for v in here),
                "availability": fmean(v.availability for v in here),
                "availability_cold": fmean(v.availability_cold for v in here),
            }
        )
    return rows


def document(docs: Path, result: dict[str, Any]) -> None:
    """Write the table into ``performance.md``."""
    head = ("shortageCost", "pool ÷ target", "÷ best size", "worst", "no pool", "whole target")
    head = (*head, "pool costs", "available %", "cold %")
    rows = [
        (
            f"{row['shortage_cost']:g}",
            f"{row['share_of_target']:.2f}",
            f"{row['chosen_vs_best']:.3f}",
            f"{row['worst_chosen_vs_best']:.3f}",
            f"{row['none_vs_best']:.3f}",
            f"{row['all_vs_best']:.3f}",
            f"{row['standby']:.4f}",
            f"{100 * row['availability']:.2f}",
            f"{100 * row['availability_cold']:.2f}",
        )
        for row in result["summary"]
    ]
    text = (
        "## Warm pools\n\n"
        f"{len(result['scenarios'])} scenarios, {result['seeds']} seeds, notice 0.9; ready in "
        f"{warm_pool.WARM_BOOT:.0f} s from the pool and in {warm_pool.COLD_BOOT:.0f} s without, and a "
        "successor is prepared for that long; a stopped instance costs "
        f"{warm_pool.WARM_PRICE:g} of a running one. What a user pays and misses (the run, the pool, the "
        "shortage at `shortageCost`) with the size that the stack takes, with none, and with the whole "
        "target, each ÷ that of the best size; *pool costs* and *available* are those of the size taken, in "
        "fractions of all-on-demand and of the time.\n\n" + table(head, rows)
    )
    replace_part(docs / "performance.md", "warm-pool", text)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write what was asked for."""
    args = parser(__doc__, "warm-pool", seeds=2).parse_args(arguments)
    source, scenarios = chosen(args.scenarios)
    tasks = [(scenario, cost, args.seeds) for scenario in scenarios for cost in SHORTAGE_COSTS]
    with ProcessPoolExecutor() as pool:
        verdicts = list(pool.map(judge, tasks))
    result = {
        "source": source,
        "scenarios": [s.name for s in scenarios],
        "seeds": args.seeds,
        "summary": summarise(verdicts),
        "verdicts": [asdict(v) for v in verdicts],
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if source == "traces" and args.scenarios is None:
        document(args.docs, result)
    for row in result["summary"]:
        print(
            f"  shortageCost {row['shortage_cost']:5g}: pool {row['share_of_target']:.2f} of the target, "
            f"{row['chosen_vs_best']:.4f} × the best size (worst {row['worst_chosen_vs_best']:.4f}); "
            f"none {row['none_vs_best']:.4f}"
        )


if __name__ == "__main__":
    main()
