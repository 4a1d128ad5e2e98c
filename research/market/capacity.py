"""Replay capacity policies with a stack's defaults over all scenarios: availability and cost.

    GPU_SPOT_TRACES=… python -m research.market.capacity [--out FILE] [--seeds 3] [--docs docs]

Without the traces the fitted model is replayed, with a message; only results on traces are written to
``research/capacity.md``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from lambdas.core.capacity import policies
from market.rules import Rules
from research.parts.page import replace_part, table
from research.parts.run import write
from research.parts.scenarios import Scenario, chosen, parser
from research.simulation.comparison.contenders import BASELINES, Contender, named
from research.simulation.comparison.regret import Mark, cheapest
from research.simulation.comparison.runs import compare
from research.simulation.plots import frontier
from research.simulation.plots.frontier import Point, curve

_IDEAL = "spothedge-ideal"
_ENDS = ("on-demand", "spot-only")
_MEANS = (
    "cost_vs_bound",
    "everything_vs_bound",
    "availability",
    "launches_per_day",
    "interruptions_per_day",
    "wasted_fraction",
)


def run_one(task: tuple[Scenario, int, tuple[str, ...]]) -> list[dict[str, Any]]:
    """Return the outcomes of the named policies on one scenario with one seed.

    Defaults: notice 0.9, a maximum of twice the target, a warm pool of the target that reuses instances.
    """
    scenario, seed, names = task
    rules = Rules(seed=seed, warm_instances=scenario.target, warm_reuse=True)
    contenders: list[Contender] = [c for name in names for c in named(name)]
    outcomes = compare(scenario.traces, rules, contenders, scenario.target, scenario.pool_size)
    return [
        {
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
    tasks = list(product(scenarios, seeds, [tuple(names)]))
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


def points(summary: Mapping[str, Mapping[str, float]]) -> list[Point]:
    """Return one point per policy."""
    return [Point(name, row["cost_vs_bound"], row["availability"]) for name, row in summary.items()]


def findings(summary: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Return the comparison of our frontier with each baseline and the ideal SpotHedge."""
    ours = [Mark(p.name, policies.DEFAULT, p.availability, p.cost) for p in curve(points(summary))]
    ends = [
        Mark(name, name, row["availability"], row["cost_vs_bound"])
        for name, row in summary.items()
        if name in _ENDS
    ]
    figures: dict[str, Any] = {
        "frontier_cost_over_baseline": {
            c.name: cheapest([*ours, *ends], _ENDS, summary[c.name]["availability"])
            / summary[c.name]["cost_vs_bound"]
            for c in BASELINES
            if c.name in summary
        }
    }
    if _IDEAL in summary:
        ideal = summary[_IDEAL]
        as_ready = [(m.cost, m.policy) for m in ours if m.availability >= ideal["availability"]]
        if as_ready:
            cost, name = min(as_ready)
            by = 1 - cost / ideal["cost_vs_bound"]
            figures["cheaper_than_spothedge_ideal"] = {"policy": name, "by": by}
    return figures


def document(docs: Path, result: Mapping[str, Any]) -> None:
    """Write this benchmark's part of the page, and the plot."""
    picture, summary = docs / "docs" / "img" / "frontier.svg", result["summary"]
    picture.parent.mkdir(parents=True, exist_ok=True)
    shown = [p for p in points(summary) if p.name not in ("spot-only", "static-mix", "on-demand")]
    frontier.write(picture, [p for p in shown if 0.9 < p.cost < 1.7], "notice 0.9, on-demand ready in 60 s")
    numbers = ("cost ÷ bound", "with the pool", "available %", "launches a day", "wasted %")

    def row(name: str, of: Mapping[str, float]) -> tuple[str, ...]:
        return (
            name,
            f"{of['cost_vs_bound']:.3f}",
            f"{of['everything_vs_bound']:.3f}",
            f"{100 * of['availability']:.3f}",
            f"{of['launches_per_day']:.0f}",
            f"{100 * of['wasted_fraction']:.1f}",
        )

    default = result["by_scenario"]
    ratios = ", ".join(
        f"{name} {ratio:.3f}" for name, ratio in result["findings"]["frontier_cost_over_baseline"].items()
    )
    seeds = "seed 1" if len(result["seeds"]) == 1 else f"seeds 1 to {len(result['seeds'])}"
    parts = [
        "## Eight markets",
        f"Whole traces, {seeds}: notice 0.9, Spot at 0.3 of On-Demand and ready in 180 s; On-Demand always "
        "available, ready in 60 s from a warm pool of the target's size that reuses instances, in 180 s "
        "beyond "
        "it; a ceiling of twice the target. What the policy does, and which ideas did not help: "
        "[0023](../docs/adr/0023-reckon-with-what-is-missing-at-once.md).",
        table(("market", *numbers), [row(name, of) for name, of in default.items()]),
        "Mean of the eight, by policy; `expected-cost@V` has `shortageCost: V`, without a value the default:",
        table(
            ("policy", *numbers),
            [row(f"**{name}**" if name == policies.DEFAULT else name, of) for name, of in summary.items()],
        ),
        f"![cost against shortage](../docs/img/{picture.name})",
        "Cost of `expected-cost`, interpolated between its settings, spot-only and on-demand, ÷ cost of a "
        f"baseline at the baseline's availability: {ratios}.",
        "The limit of any policy here: one loss in ten comes without a notice, and its worker is missing for "
        "a minute, the boot of On-Demand, unless a spare instance is paid all the time.",
    ]
    replace_part(docs, "capacity", "\n\n".join(parts))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the results."""
    options = parser(__doc__, "capacity", seeds=3)
    options.add_argument("--policy", default="all", metavar="NAME[,NAME…]|all")
    args = options.parse_args(arguments)
    source, scenarios = chosen(args.scenarios)
    started = time.monotonic()
    seeds = list(range(1, args.seeds + 1))
    outcomes = measure(scenarios, seeds, args.policy.split(","))
    summary = summarise(outcomes)
    result = {
        "source": source,
        "scenarios": [s.name for s in scenarios],
        "seeds": seeds,
        "summary": summary,
        "by_scenario": by_scenario(outcomes, policies.DEFAULT),
        "frontier": [asdict(p) for p in curve(points(summary))],
        "findings": findings(summary),
        "outcomes": outcomes,
    }
    write(args.out, result)
    if source == "traces" and args.policy == "all" and args.scenarios is None:
        document(args.docs, result)
    for name, row in summary.items():
        print(
            f"  {name:24} {row['cost_vs_bound']:.4f} (worst {row['worst_cost_vs_bound']:.4f}) × bound, "
            f"{row['everything_vs_bound']:.4f} with the pool, "
            f"{100 * row['availability']:.4f} (worst {100 * row['worst_availability']:.4f}) % available"
        )
    print(f"  {json.dumps(result['findings'])}")
    print(f"{len(outcomes)} replays in {time.monotonic() - started:.0f} s → {args.out}")


if __name__ == "__main__":
    main()
