"""Replay the replacement of instances at risk: Capacity Rebalancing, the controller, or none.

    GPU_SPOT_TRACES=… python -m research.market.rebalance [--out FILE] [--seeds 1] [--docs .]

Every scenario under known and assumed behaviour of rebalance recommendations. Without the traces the fitted
model is replayed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean
from typing import Any, ClassVar

from lambdas.core.capacity import policies
from lambdas.core.capacity.group_state import GroupState
from lambdas.core.capacity.plan import Plan, Policy
from market.replay.engine import Replay
from market.replay.fleet import LightFleet, simulated_group
from market.replay.groups import GroupShape
from market.rules import HOSTILE, Rules
from market.supply import placement
from market.supply.spot import SpotMarket
from research.parts.page import table_of
from research.parts.scenarios import Scenario, chosen, finish, parser, seeds_text

_MEANS = ("cost", "launches_per_day", "let_go_booting_per_day")
DAYS = 10
"""Replayed part of each trace."""
SHORT_LEADS = {"early": 0.9, "false_alarms": 0.0, "shortest_lead_seconds": 180.0}
WORLDS: Mapping[str, Mapping[str, float]] = {
    "no recommendations": {"early": 0.0, "false_alarms": 0.0},
    "as published": {},
    "ten false per correct one": {"false_alarms": 10.0},
    "always correct, 3–20 min ahead": {**SHORT_LEADS, "longest_lead_seconds": 1200.0},
    "as published, boots of 300 s, drain 30 s": {"spot_cold_start": 300.0, "drain_seconds": 30.0},
    "as published, On-Demand ready in 180 s": {"on_demand_cold_start": 180.0},
}
"""Differences from ``HOSTILE``, by name."""


@dataclass(frozen=True)
class OnlyOwn:
    """Our own replacement before termination: one more instance for each notice, or also at each risk."""

    inner: Policy
    at_risk: bool
    name: ClassVar[str] = "own"

    def plan(self, situation: GroupState) -> Plan:
        """Return the inner plan, with the primary group's capacity raised for successors."""
        plan = self.inner.plan(situation)
        target, risky = situation.group.target, situation.memory.at_risk
        primary = target if plan.primary is None else plan.primary
        primary += sum(situation.is_interrupted(i) for i in situation.primary)
        if self.at_risk:
            without_notice = [i for i in situation.primary if not situation.is_interrupted(i)]
            safe = situation.stable(i for i in without_notice if i.id not in risky)
            primary += min(sum(i.id in risky for i in without_notice), max(0, target - len(safe)))
        return replace(plan, primary=primary)


_POLICY = policies.build(policies.DEFAULT)
OWNERS: Mapping[str, tuple[bool, Policy]] = {
    "none": (False, _POLICY),
    "AWS": (True, _POLICY),
    "own, at notices": (False, OnlyOwn(_POLICY, at_risk=False)),
    "own, at recommendations": (False, OnlyOwn(_POLICY, at_risk=True)),
}
"""Whether the group rebalances, and the policy, by name."""


def play(task: tuple[str, str, Scenario, int]) -> dict[str, Any]:
    """Replay one scenario in one world with one owner of replacements; return its figures.

    They are shares of the time and of the cost of On-Demand alone, and counts per day.
    """
    world, owner, scenario, seed = task
    pool = {"warm_instances": scenario.target, "warm_reuse": True}
    rules = Rules(**{"seed": seed, **pool, **HOSTILE, **WORLDS[world]})
    market = SpotMarket(scenario.traces, rules, scenario.pool_size)
    rebalances, policy = OWNERS[owner]
    target = scenario.target
    fleet = LightFleet(
        simulated_group(target, int(rules.ceiling * target), drain_seconds=rules.drain_seconds), policy
    )
    shape = GroupShape(placement.named(market.names), capacity_rebalance=rebalances)
    ledger = Replay(market, rules, fleet, shape, target, keep_spans=False).run(DAYS * 1440)
    days = ledger.counted / 1440
    launches = sum(count for kind, count in ledger.counts.items() if kind.startswith("launch-"))
    return {
        "world": world,
        "owner": owner,
        "scenario": scenario.name,
        "availability": ledger.availability,
        "cost": ledger.cost,
        "launches_per_day": launches / days,
        "let_go_booting_per_day": ledger.counts.get("release-booting", 0) / days,
    }


def summarise(outcomes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return means over scenarios and seeds, and the worst scenario's availability, by world and owner."""
    rows = []
    for world, owner in dict.fromkeys((o["world"], o["owner"]) for o in outcomes):
        matching = [o for o in outcomes if (o["world"], o["owner"]) == (world, owner)]
        by_scenario: dict[str, list[float]] = defaultdict(list)
        for o in matching:
            by_scenario[o["scenario"]].append(o["availability"])
        rows.append(
            {
                "world": world,
                "owner": owner,
                "availability": fmean(o["availability"] for o in matching),
                "worst_availability": min(map(fmean, by_scenario.values())),
                **{key: fmean(o[key] for o in matching) for key in _MEANS},
            }
        )
    return rows


def page_part(result: Mapping[str, Any]) -> str:
    """Return this benchmark's part of the page."""
    columns = {
        "world: replaced by": "{world}: {owner}",
        "available %": "{availability:.3%}",
        "worst %": "{worst_availability:.3%}",
        "cost": "{cost:.4f}",
        "launches a day": "{launches_per_day:.0f}",
    }
    return (
        "## Replacement of instances at risk\n\n"
        f"{len(result['scenarios'])} scenarios of {DAYS} days, {seeds_text(result['seeds'])}, the default "
        "policy, the rehearsal's injected faults (`HOSTILE` in `market/rules.py`), a ceiling of twice the "
        "target, as many warm instances as the target. Cost ÷ on-demand. *None*: no instance is replaced "
        "before its end ([0020](../docs/adr/0020-nobody-replaces-before-the-end.md)).\n\n"
        + table_of(columns, result["summary"])
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the results."""
    args = parser(__doc__, "rebalance", seeds=1).parse_args(arguments)
    source, scenarios = chosen(args.scenarios, days=DAYS)
    with ProcessPoolExecutor() as pool:
        outcomes = list(pool.map(play, product(WORLDS, OWNERS, scenarios, range(1, args.seeds + 1))))
    result = {
        "source": source,
        "scenarios": [s.name for s in scenarios],
        "seeds": args.seeds,
        "summary": summarise(outcomes),
    }
    finish(args, "rebalance", result, page_part(result))


if __name__ == "__main__":
    main()
