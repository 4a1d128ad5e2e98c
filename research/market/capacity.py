"""Replay capacity policies with a stack's defaults over all scenarios: availability and cost.

    GPU_SPOT_TRACES=… python -m research.market.capacity [--out FILE] [--seeds 3] [--docs .]

Without the traces the fitted model is replayed, with a message; only results on traces are written to
``research/capacity.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from itertools import product
from statistics import fmean
from typing import Any

from lambdas.core.capacity import policies
from market.rules import Rules
from research.parts.page import table, table_of
from research.parts.scenarios import Scenario, chosen, finish, parser, seeds_text
from research.simulation.comparison.contenders import Contender, named
from research.simulation.comparison.regret import ENDS, Mark, cheapest
from research.simulation.comparison.runs import compare
from research.simulation.plots.frontier import Point, curve, svg

_OURS = policies.DEFAULT
_MEANS = (
    "cost_vs_bound",
    "everything_vs_bound",
    "availability",
    "launches_per_day",
    "interruptions_per_day",
    "wasted_fraction",
)


WORLDS: Mapping[str, Mapping[str, float]] = {
    "a warm pool, On-Demand in 60 s": {},
    "no pool, On-Demand in 180 s": {"warm_instances": 0, "on_demand_cold_start": 180.0},
}
"""A stack with the pool that it has by default, and one without, as with an image from a parameter."""
_POOL, _NO_POOL = WORLDS


def run_one(task: tuple[str, Scenario, int, tuple[str, ...]]) -> list[dict[str, Any]]:
    """Return the outcomes of the named policies in one world on one scenario with one seed.

    Defaults: notice 0.9, a maximum of twice the target, a warm pool of the target that reuses instances.
    """
    world, scenario, seed, names = task
    settings: Mapping[str, Any] = {"warm_instances": scenario.target, **WORLDS[world]}
    rules = Rules(seed=seed, warm_reuse=True, **settings)
    contenders: list[Contender] = [c for name in names for c in named(name)]
    outcomes = compare(scenario.traces, rules, contenders, scenario.target, scenario.pool_size)
    return [
        {
            "world": world,
            "scenario": scenario.name,
            "seed": seed,
            **asdict(o),
            "everything_vs_bound": o.cost_with_everything / o.bound,
        }
        for o in outcomes
    ]


def measure(
    scenarios: Sequence[Scenario], seeds: Iterable[int], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return all outcomes in a fixed order."""
    tasks = list(product(WORLDS, scenarios, seeds, [tuple(names)]))
    with ProcessPoolExecutor() as pool:
        return [outcome for outcomes in pool.map(run_one, tasks) for outcome in outcomes]


def by_scenario(outcomes: Sequence[Mapping[str, Any]], policy: str) -> dict[str, dict[str, float]]:
    """Return the means of one policy over the seeds, by scenario."""
    rows = [o for o in outcomes if o["policy"] == policy]
    return {
        name: {key: fmean(o[key] for o in rows if o["scenario"] == name) for key in _MEANS}
        for name in dict.fromkeys(o["scenario"] for o in rows)
    }


def summarise(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the mean over scenarios and the worst one, by policy."""
    summary: dict[str, dict[str, float]] = {}
    for policy in dict.fromkeys(o["policy"] for o in outcomes):
        rows = by_scenario(outcomes, policy).values()
        summary[policy] = {key: fmean(row[key] for row in rows) for key in _MEANS} | {
            "worst_cost_vs_bound": max(row["cost_vs_bound"] for row in rows),
            "worst_availability": min(row["availability"] for row in rows),
            "slowest_seconds": max(o["seconds"] for o in outcomes if o["policy"] == policy),
        }
    return summary


def families(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return by world the rivals' summaries, and our cost at equal availability ÷ theirs, pool included.

    ``at_ours``: the default's cost ÷ that of the cheapest rival of one family at the default's availability,
    interpolated between its settings, Spot only and On-Demand only.
    """
    by_world: dict[str, dict[str, Any]] = {}
    for world in WORLDS:
        summary = summarise([o for o in outcomes if o["world"] == world])
        marks = {
            name: Mark(name, row["availability"], row["everything_vs_bound"]) for name, row in summary.items()
        }
        ends = [marks[name] for name in ENDS]
        ours = [mark for mark in marks.values() if mark.family == _OURS]
        rivals = {name: mark for name, mark in marks.items() if mark.family not in (_OURS, *ENDS)}
        ratios = {
            name: cheapest([*ours, *ends], mark.availability) / mark.cost for name, mark in rivals.items()
        }
        default = marks[_OURS]
        best = cheapest([*rivals.values(), *ends], default.availability)
        by_world[world] = {"summary": summary, "ours_over": ratios, "at_ours": default.cost / best}
    return by_world


_FIGURES = {
    "cost ÷ bound": "{cost_vs_bound:.3f}",
    "with the pool": "{everything_vs_bound:.3f}",
    "available %": "{availability:.3%}",
    "launches a day": "{launches_per_day:.0f}",
    "wasted %": "{wasted_fraction:.1%}",
}
"""Columns of the page."""


def page_part(result: Mapping[str, Any]) -> str:
    """Return this benchmark's part of the page."""
    by_world = result["families"]
    summary = by_world[_POOL]["summary"]
    at_ours = " and ".join(f"{by_world[world]['at_ours']:.3f} with {world}" for world in WORLDS)
    names = {name: f"**{name}**" if name == _OURS else name for name in summary}
    parts = [
        "## Eight markets",
        f"Whole traces, {seeds_text(len(result['seeds']))}: notice 0.9, Spot at 0.3 of On-Demand and ready "
        "in 180 s; On-Demand always available, ready in 60 s from a warm pool of the target's size that "
        "reuses instances, in 180 s beyond it; a ceiling of twice the target. What the policy does, and "
        "which ideas did not help: [0023](../docs/adr/0023-reckon-with-what-is-missing-at-once.md).",
        table_of(
            {"market": "{name}", **_FIGURES},
            ({"name": name, **of} for name, of in result["by_scenario"].items()),
        ),
        "Mean of the eight, by policy; `expected-cost@V` has `shortageCost: V`, without a value the default:",
        table_of(
            {"policy": "{name}", **_FIGURES}, ({"name": names[name], **of} for name, of in summary.items())
        ),
        "![cost against shortage](../docs/img/frontier.svg)",
        "### Rivals as families",
        "In two worlds: a stack with a warm pool, whose cost is counted, and one without, whose On-Demand "
        "takes 180 s. SpotHedge has 0, 1 or 2 spare replicas (SkyPilot ships 0), room for them beside a "
        "whole target of On-Demand, the same pool, and ignores or acts on notices. *Ours ÷*: cost of "
        "`expected-cost`, interpolated between its settings, Spot only and On-Demand only, at the rival's "
        "availability. Cost ÷ bound and available %:",
        table(
            ("rival", *(f"{figure}{suffix}" for suffix in ("", ", no pool") for figure in _COMPARED)),
            [(name, *_cells(by_world, name)) for name in (*by_world[_POOL]["ours_over"], _OURS)],
        ),
        f"The default's cost ÷ that of the cheapest rival at the default's availability: {at_ours}.",
        "The limit of any policy here: one loss in ten comes without a notice, and its worker is missing for "
        "a minute, the boot of On-Demand, unless a spare instance is paid all the time.",
    ]
    return "\n\n".join(parts)


_COMPARED = ("cost", "available", "ours ÷")


def _cells(by_world: Mapping[str, Mapping[str, Any]], name: str) -> list[str]:
    cells: list[str] = []
    for of in by_world.values():
        row, ratio = of["summary"][name], of["ours_over"].get(name)
        cost = f"{row['everything_vs_bound']:.3f}"
        cells += [cost, f"{100 * row['availability']:.3f}", "" if ratio is None else f"{ratio:.3f}"]
    return cells


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the results."""
    options = parser(__doc__, "capacity", seeds=3)
    options.add_argument("--policy", default="all", metavar="NAME[,NAME…]|all")
    args = options.parse_args(arguments)
    source, scenarios = chosen(args.scenarios)
    seeds = list(range(1, args.seeds + 1))
    outcomes = measure(scenarios, seeds, args.policy.split(","))
    by_world = families(outcomes)
    summary = by_world[_POOL]["summary"]
    points = [Point(name, row["cost_vs_bound"], row["availability"]) for name, row in summary.items()]
    result = {
        "source": source,
        "scenarios": [s.name for s in scenarios],
        "seeds": seeds,
        "families": by_world,
        "by_scenario": by_scenario([o for o in outcomes if o["world"] == _POOL], _OURS),
        "frontier": [asdict(p) for p in curve(points)],
        "outcomes": outcomes,
    }
    shown = [p for p in points if p.name not in (*ENDS, "static-mix") and 0.9 < p.cost < 1.7]
    is_whole = args.policy == "all"
    pictures = {"frontier.svg": svg(shown, "notice 0.9, on-demand ready in 60 s")} if is_whole else {}
    finish(args, "capacity", result, page_part(result), pictures=pictures, is_whole=is_whole)


if __name__ == "__main__":
    main()
