"""Replay every capacity policy over all scenarios: how ready, for how much money.

    GPU_SPOT_TRACES=… python -m bench.capacity [--out FILE] [--seeds 3] [--docs docs]

Without the traces the fitted model is replayed, and that is said; ``docs/performance.md`` is written from
traces only.
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

from bench._page import replace_part, table
from bench._scenarios import Scenario, chosen, parser
from gpu_spot.market.comparison.contenders import BASELINES, Contender, named
from gpu_spot.market.comparison.runs import compare
from gpu_spot.market.rules import Rules
from gpu_spot.report.frontier import Point, curve, write

SETTINGS: Mapping[str, dict[str, float]] = {
    "notice 0.9, on-demand 60 s": {"notice": 0.9, "on_demand_cold_start": 60.0},
    "notice 0.9, on-demand 180 s": {"notice": 0.9, "on_demand_cold_start": 180.0},
    "no notice, on-demand 60 s": {"notice": 0.0, "on_demand_cold_start": 60.0},
}
_IDEAL = "spothedge-ideal"


def run_one(task: tuple[Scenario, str, int, tuple[str, ...]]) -> list[dict[str, Any]]:
    """Return the outcomes of the named policies on one scenario, in one setting, with one seed."""
    scenario, setting, seed, names = task
    rules = Rules(seed=seed, **SETTINGS[setting])  # type: ignore[arg-type]
    contenders: list[Contender] = [c for name in names for c in named(name)]
    outcomes = compare(scenario.traces, rules, contenders, scenario.target, scenario.pool_size)
    return [{"setting": setting, "scenario": scenario.name, "seed": seed, **asdict(o)} for o in outcomes]


def measure(
    scenarios: Sequence[Scenario], seeds: Iterable[int], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return all outcomes, in a fixed order whatever ran first."""
    tasks = list(product(scenarios, SETTINGS, seeds, [tuple(names)]))
    with ProcessPoolExecutor() as pool:
        return [outcome for outcomes in pool.map(run_one, tasks) for outcome in outcomes]


def summarise(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return by setting and policy the means over scenarios, and the worst; seeds are averaged first."""
    summary: dict[str, dict[str, dict[str, float]]] = {}
    for setting in dict.fromkeys(o["setting"] for o in outcomes):
        here = [o for o in outcomes if o["setting"] == setting]
        for policy in dict.fromkeys(o["policy"] for o in here):
            rows = [o for o in here if o["policy"] == policy]
            names = dict.fromkeys(o["scenario"] for o in rows)
            cost = [fmean(o["cost_vs_bound"] for o in rows if o["scenario"] == name) for name in names]
            ready = [fmean(o["availability"] for o in rows if o["scenario"] == name) for name in names]
            summary.setdefault(setting, {})[policy] = {
                "cost_vs_bound": fmean(cost),
                "worst_cost_vs_bound": max(cost),
                "availability": fmean(ready),
                "worst_availability": min(ready),
                "launches_per_day": fmean(o["launches_per_day"] for o in rows),
                "interruptions_per_day": fmean(o["interruptions_per_day"] for o in rows),
                "wasted_fraction": fmean(o["wasted_fraction"] for o in rows),
                "slowest_seconds": max(o["seconds"] for o in rows),
            }
    return summary


def points(by_policy: Mapping[str, Mapping[str, float]]) -> list[Point]:
    """Return one point a policy."""
    return [Point(name, row["cost_vs_bound"], row["availability"]) for name, row in by_policy.items()]


def frontier_cost(by_policy: Mapping[str, Mapping[str, float]], availability: float) -> float:
    """Return what our frontier costs at an availability, straight between its points and the two ends."""
    ends = [p for p in points(by_policy) if p.name in ("on-demand", "spot-only")]
    path = sorted([*curve(points(by_policy)), *ends], key=lambda p: (p.availability, p.cost))
    best = min((p.cost for p in path if p.availability >= availability), default=float("inf"))
    for low, high in ((a, b) for a in path for b in path if a.availability < availability <= b.availability):
        share = (availability - low.availability) / (high.availability - low.availability)
        best = min(best, low.cost + share * (high.cost - low.cost))
    return best


def findings(summary: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    """Return, by setting, how our frontier stands against each baseline and against the ideal SpotHedge."""
    found: dict[str, Any] = {}
    for setting, by_policy in summary.items():
        baselines = [c.name for c in BASELINES if c.name in by_policy]
        entry: dict[str, Any] = {
            "frontier_cost_over_baseline": {
                name: frontier_cost(by_policy, by_policy[name]["availability"])
                / by_policy[name]["cost_vs_bound"]
                for name in baselines
            }
        }
        if _IDEAL in by_policy:
            ideal = by_policy[_IDEAL]
            as_ready = [
                (row["cost_vs_bound"] / ideal["cost_vs_bound"], name)
                for name, row in by_policy.items()
                if "@" in name and row["availability"] >= ideal["availability"]
            ]
            if as_ready:
                ratio, name = min(as_ready)
                entry["cheaper_than_spothedge_ideal"] = {"policy": name, "by": 1 - ratio}
        found[setting] = entry
    return found


def document(docs: Path, result: Mapping[str, Any]) -> None:
    """Write the tables into ``performance.md`` and the plots beside it."""
    parts = [
        "## Service fleets",
        f"{len(result['scenarios'])} scenarios on real traces, {len(result['seeds'])} seeds each, spot at "
        "0.3 of on-demand and ready in 180 s. Cost is in multiples of a clairvoyant bound with the same "
        "cold starts; *worst* is the worst scenario. `expected-cost@V` is our policy at `shortageCost: V`; "
        "without a value it is the default. What the policy does, and which ideas did not pay: "
        "[decision 0010](adr/0010-spend-on-demand-by-expected-cost.md).",
    ]
    for number, (setting, by_policy) in enumerate(result["summary"].items(), 1):
        picture = docs / "img" / f"frontier-{number}.svg"
        picture.parent.mkdir(parents=True, exist_ok=True)
        shown = [p for p in points(by_policy) if p.name not in ("spot-only", "static-mix", "on-demand")]
        write(picture, [p for p in shown if 0.9 < p.cost < 1.7], setting)
        rows = [
            (
                f"**{name}**" if name == result["default"] else name,
                f"{row['cost_vs_bound']:.3f}",
                f"{row['worst_cost_vs_bound']:.3f}",
                f"{100 * row['availability']:.3f}",
                f"{100 * row['worst_availability']:.3f}",
                f"{row['launches_per_day']:.0f}",
                f"{100 * row['wasted_fraction']:.1f}",
            )
            for name, row in by_policy.items()
        ]
        head = ("policy", "cost ÷ bound", "worst", "available %", "worst %", "launches a day", "wasted %")
        found = result["findings"][setting]
        lines = [f"### {setting[0].upper()}{setting[1:]}", f"![cost against shortage](img/{picture.name})"]
        if "cheaper_than_spothedge_ideal" in found:
            cheaper = found["cheaper_than_spothedge_ideal"]
            lines.append(
                f"`{cheaper['policy']}` is {100 * cheaper['by']:.1f} % cheaper than `{_IDEAL}` at no lower "
                "mean availability."
            )
        ratios = ", ".join(
            f"{name} {ratio:.3f}" for name, ratio in found["frontier_cost_over_baseline"].items()
        )
        lines.append(
            "What our frontier, straight between its points and ending in spot-only and on-demand, costs at "
            f"each baseline's availability ÷ what the baseline costs: {ratios}."
        )
        parts += [*lines, table(head, rows)]
    replace_part(docs / "performance.md", "capacity", "\n\n".join(parts))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write what was asked for."""
    taken = parser(__doc__, "capacity", seeds=3)
    taken.add_argument("--policy", default="all", metavar="NAME[,NAME…]|all")
    args = taken.parse_args(arguments)
    source, scenarios = chosen(args.scenarios)
    names = args.policy.split(",")
    started = time.monotonic()
    seeds = list(range(1, args.seeds + 1))
    outcomes = measure(scenarios, seeds, names)
    summary = summarise(outcomes)
    result = {
        "source": source,
        "settings": SETTINGS,
        "scenarios": [s.name for s in scenarios],
        "seeds": seeds,
        "default": next((o["policy"] for o in outcomes if o["default"]), None),
        "summary": summary,
        "frontier": {
            setting: [asdict(p) for p in curve(points(by_policy))] for setting, by_policy in summary.items()
        },
        "findings": findings(summary),
        "outcomes": outcomes,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    whole = source == "traces" and args.policy == "all" and args.scenarios is None
    if whole:
        document(args.docs, result)
    for setting, by_policy in summary.items():
        print(setting)
        for name, row in by_policy.items():
            print(
                f"  {name:24} {row['cost_vs_bound']:.4f} (worst {row['worst_cost_vs_bound']:.4f}) × bound, "
                f"{100 * row['availability']:.4f} (worst {100 * row['worst_availability']:.4f}) % available"
            )
        print(f"  {json.dumps(result['findings'][setting])}")
    print(f"{len(outcomes)} replays in {time.monotonic() - started:.0f} s → {args.out}")


if __name__ == "__main__":
    main()
