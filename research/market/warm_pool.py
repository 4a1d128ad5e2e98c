"""Replay a fallback with no warm pool, half a pool and a whole one, to judge the default size.

    GPU_SPOT_TRACES=… python -m research.market.warm_pool [--out FILE] [--seeds 1] [--docs .]

A size is judged by the whole bill plus the shortage at the price ``shortageCost``. Then the default is
replayed in worlds where a pool has less value. Without the traces the fitted model is replayed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from statistics import fmean
from typing import Any, Final

from contracts.group import warm_pool
from lambdas.core.capacity.policies.expected_cost import ExpectedCost
from market.rules import Rules
from market.supply.spot import SpotMarket
from research.parts.page import table_of
from research.parts.scenarios import Scenario, chosen, finish, parser, seeds_text
from research.simulation.comparison.bound import bound
from research.simulation.comparison.contenders import at
from research.simulation.comparison.runs import play

SHARES: Final = (0.0, 0.5, 1.0)
SHORTAGE_COSTS: Final = (1.2, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)
MIN_SHORTAGE_COST: Final = 2.0
"""Minimum ``shortageCost`` at which a warm pool of the Spot share pays off.

A start from it saves two paid minutes per loss, which exceeds the storage cost if Spot is lost every other
hour; the avoided shortage adds to that. Part of the share does not pay off: after one cold start the
controller must plan with slow boots.
"""
WORLDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "as above": {},
    "AWS reuses no instance": {"warm_reuse": False},
    "10 % of warm starts rejected": {"warm_refusal": 0.1},
    "30 % of warm starts rejected": {"warm_refusal": 0.3},
    "cold boots of 360 s": {"spot_cold_start": 360.0},
    "cold boots of 360 s, 30 % rejected": {"spot_cold_start": 360.0, "warm_refusal": 0.3},
}
"""Differences from the rules of the traces' README."""


@dataclass(frozen=True)
class Account:
    """The result of one pool on one scenario, mean over the seeds.

    ``cost``, ``everything`` (with the pool) and ``bound`` are fractions of the cost of On-Demand alone,
    ``availability`` is a share of the time.
    """

    scenario: str
    world: str
    shortage_cost: float
    share: float
    cost: float
    everything: float
    bound: float
    availability: float

    @property
    def worth(self) -> float:
        """The bill plus the priced shortage."""
        return self.everything + self.shortage_cost * (1 - self.availability)


def account(scenario: Scenario, world: str, shortage_cost: float, share: float, seeds: int) -> Account:
    """Replay one scenario in one world with a pool of a share of the target, over seeds from 1."""
    runs = []
    size = round(share * scenario.target)
    for seed in range(1, seeds + 1):
        rules = Rules(**{"seed": seed, "warm_instances": size, "warm_reuse": True, **WORLDS[world]})
        market = SpotMarket(scenario.traces, rules, scenario.pool_size)
        ledger = play(market, rules, at(shortage_cost), scenario.target)
        bound = _lower_bound(scenario, rules.spot_cold_start)
        runs.append((ledger.cost, ledger.cost_with_everything, bound, ledger.availability))
    cost, everything, bound, ready = (fmean(column) for column in zip(*runs, strict=True))
    return Account(scenario.name, world, shortage_cost, share, cost, everything, bound, ready)


@cache
def _lower_bound(scenario: Scenario, spot_cold_start: float) -> float:
    """Return the bound, which depends neither on pools nor on random draws."""
    rules = Rules(spot_cold_start=spot_cold_start)
    return bound(SpotMarket(scenario.traces, rules, scenario.pool_size), rules, scenario.target)


def of_costs(accounts: Sequence[Account]) -> list[dict[str, float]]:
    """Return each share's total ÷ the best, mean and worst over scenarios, by shortage cost."""
    rows = []
    for cost in SHORTAGE_COSTS:
        share = 1.0 if cost >= MIN_SHORTAGE_COST else 0.0
        of_cost = [account for account in accounts if account.shortage_cost == cost]
        worths: dict[str, dict[float, float]] = defaultdict(dict)
        for account in of_cost:
            worths[account.scenario][account.share] = account.worth
        ratios = {share: [of[share] / min(of.values()) for of in worths.values()] for share in SHARES}
        rows.append(
            {
                "shortage_cost": cost,
                "share": share,
                "chosen_vs_best": fmean(ratios[share]),
                "worst_chosen_vs_best": max(ratios[share]),
                **{f"share_{share:g}_vs_best": fmean(ratios[share]) for share in SHARES},
                **_summary_of([account for account in of_cost if account.share == share]),
            }
        )
    return rows


def of_worlds(accounts: Sequence[Account]) -> list[dict[str, Any]]:
    """Return the results with the whole pool and without, means over the scenarios, by world."""
    rows = []
    for world in WORLDS:
        matching = [account for account in accounts if account.world == world]
        whole, none = (_summary_of([item for item in matching if item.share == s]) for s in (1.0, 0.0))
        rows.append({"world": world, **whole, **{f"cold_{key}": value for key, value in none.items()}})
    return rows


def _summary_of(accounts: Sequence[Account]) -> dict[str, float]:
    return {
        "cost_vs_bound": fmean(account.cost / account.bound for account in accounts),
        "everything_vs_bound": fmean(account.everything / account.bound for account in accounts),
        "availability": fmean(account.availability for account in accounts),
        "worst_availability": min(account.availability for account in accounts),
        "worth": fmean(account.worth for account in accounts),
    }


def page_part(result: Mapping[str, Any]) -> str:
    """Return this benchmark's part of the page."""
    costs = {
        "shortageCost": "{shortage_cost:g}",
        "pool ÷ target": "{share:g}",
        "÷ best share": "{chosen_vs_best:.3f}",
        "worst": "{worst_chosen_vs_best:.3f}",
        "none": "{share_0_vs_best:.3f}",
        "half": "{half:.3f}",
        "whole": "{share_1_vs_best:.3f}",
        "bill ÷ bound": "{everything_vs_bound:.3f}",
        "available %": "{availability:.3%}",
    }
    worlds = {
        "world": "{world}",
        "cost ÷ bound": "{cost_vs_bound:.3f}",
        "bill ÷ bound": "{everything_vs_bound:.3f}",
        "available %": "{availability:.3%}",
        "worst %": "{worst_availability:.3%}",
        "total cost": "{worth:.3f}",
        "no pool: bill ÷ bound": "{cold_everything_vs_bound:.3f}",
        "no pool: available %": "{cold_availability:.3%}",
        "no pool: total cost": "{cold_worth:.3f}",
    }
    return (
        "## Warm pools\n\n"
        f"{len(result['scenarios'])} scenarios, {seeds_text(result['seeds'])}, notice 0.9, a ceiling of "
        f"{Rules().ceiling:g} × the target; ready in {warm_pool.WARM_BOOT_SECONDS:.0f} s from the pool and "
        f"in {warm_pool.COLD_BOOT_SECONDS:.0f} s without; terminated instances return to the pool; a stopped "
        f"instance costs {warm_pool.WARM_INSTANCE_PRICE:g} of a running one. Total cost (run, pool, and "
        "shortage at `shortageCost`) with the pool that `warmInstances` advises, none, half and all of the "
        "target, ÷ the best of these. *Bill*: cost with the pool.\n\n"
        + table_of(costs, ({**row, "half": row["share_0.5_vs_best"]} for row in result["costs"]))
        + f"\n\nAt `shortageCost` {ExpectedCost().shortage_cost:g}, the default, with a pool of the "
        "target's size and with none, in worlds where a pool is worth less. The bound has the world's cold "
        "starts and On-Demand ready in 60 s; *total cost* is ÷ on-demand.\n\n"
        + table_of(worlds, result["worlds"])
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the results."""
    args = parser(__doc__, "warm-pool", seeds=1).parse_args(arguments)
    source, scenarios = chosen(args.scenarios)
    default = ExpectedCost().shortage_cost
    costs = [(s, "as above", cost, share) for s in scenarios for cost in SHORTAGE_COSTS for share in SHARES]
    worlds = [(s, world, default, share) for s in scenarios for world in WORLDS for share in (0.0, 1.0)]
    tasks = list(dict.fromkeys([*costs, *worlds]))
    with ProcessPoolExecutor() as pool:
        measured = pool.map(partial(account, seeds=args.seeds), *zip(*tasks, strict=True))
        accounts = dict(zip(tasks, measured, strict=True))
    result = {
        "source": source,
        "scenarios": [s.name for s in scenarios],
        "seeds": args.seeds,
        "costs": of_costs([accounts[task] for task in costs]),
        "worlds": of_worlds([accounts[task] for task in worlds]),
        "accounts": [asdict(item) for item in accounts.values()],
    }
    finish(args, "warm-pool", result, page_part(result))


if __name__ == "__main__":
    main()
