"""Replay the default policy and all others in worlds with changed assumptions.

    GPU_SPOT_TRACES=… python -m research.market.doubt [--out FILE] [--seeds 1] [--docs .]

Every scenario in every cell of a grid of assumptions. Without the traces the fitted model is replayed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from statistics import fmean
from typing import Any

from lambdas.core.capacity import policies
from market.rules import Rules
from market.supply.spot import default_pool_size
from research.parts.cells import Axes, Cell, cells, changed, title
from research.parts.page import table_of
from research.parts.scenarios import Scenario, chosen, finish, parser
from research.simulation.comparison.contenders import BASELINES, FAMILY, Contender, named
from research.simulation.comparison.regret import ENDS, Mark, cheapest, dominates
from research.simulation.comparison.runs import PolicyOutcome, compare
from research.simulation.plots import regrets

AXES: Axes = {
    "notice": {
        "for half of the interruptions": {"notice": 0.5},
        "always": {"notice": 1.0},
        "never": {"notice": 0.0},
        "0 to 120 s ahead": {"shortest_notice_seconds": 0.0},
    },
    "on-demand": {
        "180 s, no pool": {"warm": False, "on_demand_cold_start": 180.0},
        "360 s, no pool": {"warm": False, "on_demand_cold_start": 360.0, "spot_cold_start": 360.0},
    },
    "boots": {"varying by 30 %": {"boot_spread": 0.3}},
    "on-demand rejected": {
        "with probability 0.3": {"on_demand_refusal": 0.3, "warm_refusal": 0.3},
        "during half of the Spot outages": {"on_demand_episodes": 0.5},
    },
    "polls": {"every 120 s, 5 % fail": {"look_seconds": 120.0, "api_failure": 0.05}},
    "workers": {"16": {"times": 4}, "64": {"times": 16}},
    "drops": {"spread over the gap": {"drop_spread": 1.0}},
    "ceiling": {"4 ×": {"ceiling": 4.0}},
    "types per zone": {"two, failing together": {"types": 2}},
    "recommendations": {
        "early, two of three false": {"early": 0.6, "false_alarms": 21 / 9},
        "ten false per correct one": {"early": 0.6, "false_alarms": 10.0},
    },
    "spot price": {
        "0.7": {"spot_price": 0.7},
        "1.0": {"spot_price": 1.0},
        "from the traces": {"own_prices": True},
    },
    "group": {"retries every 600 s, replaces after 60 s": {"retry_seconds": 600.0, "replace_seconds": 60.0}},
}
"""The axes of uncertainty. As expected: notice 0.9, 120 s ahead; On-Demand ready in 60 s from a warm pool of
the target that reuses instances and always has capacity; a pass each minute; a maximum of 2 × the target;
pools that drop at once; Spot at 0.3."""
TOGETHER = 4
DAYS = 2
"""Replayed part of each trace."""
P3_PRICE = 3.06
"""US dollars per hour of On-Demand p3.2xlarge in us-east-1 and us-west-2, the priced traces' type."""
RIVALS = (*BASELINES, *FAMILY)
CONTENDERS: tuple[Contender, ...] = (
    *RIVALS,
    *named(",".join(policies.NAMES)),
    *named("expected-cost@5,expected-cost@10,expected-cost@20,expected-cost@300,expected-cost@1000"),
)


def play(task: tuple[Cell, Scenario, int]) -> list[PolicyOutcome]:
    """Replay all contenders on one scenario in one cell with one seed."""
    cell, scenario, seed = task
    world = changed(AXES, cell)
    times, warm, own_prices = world.pop("times", 1), world.pop("warm", True), world.pop("own_prices", False)
    if own_prices and any(trace.prices for trace in scenario.traces):
        world["on_demand_price"] = P3_PRICE
    target = scenario.target * times
    size = (scenario.pool_size or default_pool_size(scenario.traces)) * times
    rules = Rules(seed=seed, warm_instances=target if warm else 0, warm_reuse=True, **world)
    return list(compare(scenario.traces, rules, CONTENDERS, target, size))


def judge(cell: Cell, played: Mapping[str, Sequence[PolicyOutcome]]) -> list[dict[str, Any]]:
    """Return a row for each policy of a cell: means over scenarios and seeds, dominance, and regret.

    ``played`` are the outcomes by scenario.

    Regret is at the availability of the default: the cost of a policy, interpolated between its settings and
    the ends, above the cheapest of all; ``None`` if it does not reach that availability.
    """
    rows: list[dict[str, Any]] = []
    for contender in CONTENDERS:
        by_scenario = [[p for p in ps if p.policy == contender.name] for ps in played.values()]
        mine = [p for ps in by_scenario for p in ps]
        rows.append(
            {
                "axes": dict(cell),
                "policy": contender.name,
                "availability": fmean(p.availability for p in mine),
                "cost": fmean(p.cost for p in mine),
                "cost_with_everything": fmean(p.cost_with_everything for p in mine),
                "cost_vs_bound": fmean(p.cost_vs_bound for p in mine),
                "everything_vs_bound": fmean(p.cost_with_everything / p.bound for p in mine),
                "worst_availability": min(fmean(p.availability for p in ps) for ps in by_scenario),
            }
        )
    marks = [Mark(row["policy"], row["availability"], row["cost_with_everything"]) for row in rows]
    # Our own policy at other shortage costs is another setting, not another policy.
    defaults = [mark for mark in marks if "@" not in mark.policy]
    availability = next(mark.availability for mark in marks if mark.policy == policies.DEFAULT)
    lowest_cost = cheapest(marks, availability)
    for row, mark in zip(rows, marks, strict=True):
        row["dominated_by"] = [rival.policy for rival in defaults if dominates(rival, mark)]
        family = [m for m in marks if m.family in (mark.family, *ENDS)]
        own_cost = mark.cost if mark.policy == policies.DEFAULT else cheapest(family, availability)
        row["regret"] = own_cost / lowest_cost - 1 if math.isfinite(own_cost) else None
    return rows


def summarise(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the number of cells, the number in which the default is dominated, and the mean regrets."""
    of_default = [row for row in rows if row["policy"] == policies.DEFAULT]
    names = [c.name for c in CONTENDERS if "@" not in c.name and not c.default]
    regrets_of = {name: [row["regret"] for row in rows if row["policy"] == name] for name in names}
    reached = {name: [r for r in of_one if r is not None] for name, of_one in regrets_of.items()}
    return {
        "cells": len(of_default),
        "dominated": sum(bool(row["dominated_by"]) for row in of_default),
        "mean_regret": fmean(row["regret"] for row in of_default),
        "worst_regret": max(row["regret"] for row in of_default),
        "regret_of": {name: fmean(of_one) for name, of_one in reached.items()},
        "not_reached_by": {name: len(regrets_of[name]) - len(of_one) for name, of_one in reached.items()},
    }


def page_part(result: Mapping[str, Any]) -> str:
    """Return the grid's part of the page."""
    shown = [
        {**row, "world": title(row["axes"]), "dominated": ", ".join(row["dominated_by"]) or "–"}
        for row in result["rows"]
        if row["policy"] == policies.DEFAULT and len(row["axes"]) <= 1
    ]
    columns = {
        "world": "{world}",
        "available %": "{availability:.3%}",
        "worst %": "{worst_availability:.3%}",
        "cost": "{cost:.4f}",
        "with the pool": "{cost_with_everything:.4f}",
        "÷ bound": "{cost_vs_bound:.3f}",
        "regret %": "{regret:.2%}",
        "dominated by": "{dominated}",
    }
    mean_regrets = ", ".join(f"{name} {100 * regret:.1f} %" for name, regret in result["regret_of"].items())
    summary_text = (
        f"{result['cells']} worlds × {len(result['scenarios'])} scenarios of {result['days']:g} days × "
        f"{result['seeds']} seed{'s' if result['seeds'] > 1 else ''}: as expected, each assumption changed "
        f"alone, and up to {TOGETHER} together until every pair occurs. *Regret*: cost above the cheapest "
        "policy at the default policy's availability, interpolated between a policy's settings, spot-only "
        "and on-demand; with the warm pool. The default policy's mean regret is "
        f"**{100 * result['mean_regret']:.2f} %**, at worst {100 * result['worst_regret']:.2f} %; it is "
        f"dominated (another costs no more and is no less available) in **{result['dominated']}** worlds. "
        f"Mean regret of the others: {mean_regrets}."
    )
    picture = "![regret by world](../docs/img/regret.svg)"
    return "\n\n".join(["## Policies under uncertainty", summary_text, picture, table_of(columns, shown)])


def picture(result: Mapping[str, Any]) -> str:
    """Return the picture of all regrets."""
    return regrets.svg(
        {
            name: [(title(row["axes"]), row["regret"]) for row in result["rows"] if row["policy"] == name]
            for name in (policies.DEFAULT, *result["regret_of"])
        }
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the results."""
    options = parser(__doc__, "doubt", seeds=1)
    options.add_argument("--cells", type=int, help="only the first so many")
    options.add_argument("--days", type=float, default=DAYS, help=f"of each trace ({DAYS})")
    args = options.parse_args(arguments)
    source, scenarios = chosen(args.scenarios, args.days)
    scenarios = [replace(s, traces=tuple(t.first(args.days * 86400) for t in s.traces)) for s in scenarios]
    grid, seeds = cells(AXES, TOGETHER)[: args.cells], range(1, args.seeds + 1)
    rows = list[dict[str, Any]]()
    with ProcessPoolExecutor() as pool:
        played = pool.map(play, product(grid, scenarios, seeds))
        for cell in grid:
            rows += judge(cell, {s.name: [o for _ in seeds for o in next(played)] for s in scenarios})
    result = {
        "source": source,
        "scenarios": [s.name for s in scenarios],
        "days": args.days,
        "seeds": args.seeds,
        **summarise(rows),
        "rows": rows,
    }
    pictures, is_whole = {"regret.svg": picture(result)}, args.cells is None
    finish(args, "doubt", result, page_part(result), pictures=pictures, is_whole=is_whole)


if __name__ == "__main__":
    main()
