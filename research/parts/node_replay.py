"""Trainings of several nodes on Spot traces: which steps count after losses, by the rule for losses.

Nodes in one zone (a trace is a zone), in the zone that has them, and a node in each zone; without traces a
node in each of as many drawn pools. Costs of losses are
those of `research.simulation.nodes.training.NodeCosts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from market.rules import TICK_SECONDS, Rules
from market.supply.drawn_market import draw
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace, load
from research.parts import needs, page
from research.parts.cells import Axes, cells, changed, title
from research.simulation.nodes.timeline import NodeEvent, node_events
from research.simulation.nodes.training import NodeCosts, NodeOutcome, NodeRule, train

FOUR: Final = "preemption/4-node/aws-08-03-2023"
SIXTEEN: Final = "availability/16-node/aws-08-27-2023"
ZONES: Final = "availability/1-node/aws-02-15-2023"
MODEL_HOURS: Final = 24 * 14
AXES: Final[Axes] = {
    "notice": {"for half": {"notice": 0.5}, "never": {"notice": 0.0}},
    "boot": {"60 s": {"boot_seconds": 60.0}, "600 s": {"boot_seconds": 600.0}},
    "stall": {"30 s": {"stall_seconds": 30.0, "notice_stall_seconds": 10.0}},
    "start": {"10 s": {"start_seconds": 10.0}},
    "saves": {
        "every minute": {"checkpoint_seconds": 60.0},
        "every two hours, for 5 % of the price": {"checkpoint_seconds": 7200.0, "save_price_seconds": 360.0},
    },
    "joins": {"at the next save": {"joins_early": False}},
    "at least": {"one node": {"fewest": 1}},
    "drops": {"one by one": {"drop_spread": 1.0}},
}
"""Differences from the expected world."""
TOGETHER: Final = 4
SEEDS: Final = (1, 2, 3)
RULES: Final = ("restart_all", "survivors", "peers")


@dataclass(frozen=True)
class NodeMarket:
    """Traces in one of whose pools ``nodes`` nodes train; the rules are compared on the same nodes.

    Of several traces all nodes move once fewer than ``moves_below`` are there and another has as many.
    """

    name: str
    nodes: int
    traces: tuple[PoolTrace, ...]
    moves_below: int = 0
    kind: str = ""
    """Of markets whose rows are added up."""

    @property
    def seconds(self) -> float:
        """The length of the replay."""
        return min(trace.seconds for trace in self.traces) // TICK_SECONDS * TICK_SECONDS

    def outcomes(self, seed: int, changes: Mapping[str, Any]) -> dict[str, NodeOutcome]:
        """Return the outcome of each of `RULES`; ``changes`` of costs, rule and market."""
        fields = {name: value for name, value in changes.items() if name in NodeCosts.__dataclass_fields__}
        costs = replace(NodeCosts(), **fields)
        spread = changes.get("drop_spread", 0.0)
        events = _events(self, seed, costs.notice, spread, costs.boot_seconds)
        fewest, joins_early = changes.get("fewest", self.nodes // 2), changes.get("joins_early", True)
        rules = {
            "restart_all": NodeRule(self.nodes),
            "survivors": NodeRule(fewest, joins_early=joins_early),
            "peers": NodeRule(fewest, joins_early=joins_early, has_peers=True),
        }
        return {
            name: train(events, rule, costs, nodes=self.nodes, seconds=self.seconds)
            for name, rule in rules.items()
        }


@cache
def _events(
    market: NodeMarket, seed: int, notice: float, drop_spread: float, boot_seconds: float
) -> list[NodeEvent]:
    rules = Rules(seed=seed, notice=notice, drop_spread=drop_spread)
    return node_events(
        SpotMarket(market.traces, rules, pool_size=1),
        range(len(market.traces)),
        nodes=market.nodes,
        fewest=market.moves_below or market.nodes,
        boot_seconds=boot_seconds,
        seed=seed,
    )


def a_node_in_each(name: str, traces: Sequence[PoolTrace], kind: str = "") -> NodeMarket:
    """Return the market in which each trace has one node at most."""
    length = min(len(trace.samples) for trace in traces)
    samples = (map(bool, trace.samples[:length]) for trace in traces)
    together = tuple(map(sum, zip(*samples, strict=True)))
    trace = PoolTrace(name, traces[0].gap_seconds, together)
    return NodeMarket(name, len(traces), (trace,), kind=kind or f"{len(traces)}, zones")


def markets(root: Path | None) -> list[NodeMarket]:
    """Return the markets of a folder of traces, or of the model; says which of the traces are missing."""
    if root is None:
        return [
            a_node_in_each(f"model, drawn {seed}", draw(count, MODEL_HOURS, seed), str(count))
            for count in (4, 16)
            for seed in SEEDS
        ]
    result = list[NodeMarket]()
    for nodes, folder in ((4, FOUR), (16, SIXTEEN)):
        if not (root / folder).is_dir():
            needs.say(f"trainings of {nodes} nodes are left out: {folder} is not in GPU_SPOT_TRACES")
            continue
        zones = load([root / folder])
        result += [NodeMarket(zone.name.partition("_")[0], nodes, (zone,), kind=str(nodes)) for zone in zones]
        for below, text in ((nodes, "one is missing"), (nodes // 2, "less than half are there")):
            result.append(NodeMarket(f"all three, moved if {text}", nodes, zones, below))
    if (root / ZONES).is_dir():
        for region in ("us-east-1", "us-west-2"):
            traces = tuple(trace for trace in load([root / ZONES]) if trace.name.startswith(region))
            result.append(a_node_in_each(f"a node in each of {len(traces)} zones of {region}", traces))
    return result


def mean(market: NodeMarket, changes: Mapping[str, Any], seeds: Sequence[int] = SEEDS) -> dict[str, Any]:
    """Return a market's row: means over the seeds; ``losses`` of nodes that trained, a day."""
    several = [market.outcomes(seed, changes) for seed in seeds]
    row: dict[str, Any] = {name: fmean(outcomes[name].goodput for outcomes in several) for name in RULES}
    row["ready"] = fmean(outcomes["survivors"].ready for outcomes in several)
    row["losses"] = fmean(outcomes["survivors"].losses for outcomes in several) / market.seconds * 86400
    row["repeated"] = fmean(outcomes["survivors"].repeated for outcomes in several)
    return {"market": market.name, "nodes": market.nodes, "kind": market.kind, **row}


def replayed(root: Path | None) -> dict[str, Any]:
    """Return all rows and cells; ``goodput_vs_restart_all`` of four nodes in one zone, all zones added up."""
    everywhere = markets(root)
    kinds = dict.fromkeys(market.kind for market in everywhere if market.kind)
    grid = list[dict[str, Any]]()
    for cell, kind in product(cells(AXES, TOGETHER), kinds):
        changes = changed(AXES, cell)
        rows = [mean(market, changes, SEEDS[:1]) for market in everywhere if market.kind == kind]
        sums = {name: sum(row[name] for row in rows) for name in (*RULES, "ready")}
        ratios = {name: sums[name] / sums["restart_all"] for name in ("survivors", "peers", "ready")}
        grid.append({"cell": title(cell), "changes": len(cell), "kind": kind, **ratios})
    expected = {row["kind"]: row for row in grid if not row["changes"]}
    return {
        "source": "model" if root is None else "traces",
        "goodput_vs_restart_all": expected["4"]["survivors"] if "4" in expected else None,
        "rows": [mean(market, {}) for market in everywhere],
        "cells": grid,
        "cells_lost": sum(row["survivors"] < 1 for row in grid),
    }


def section(result: Mapping[str, Any]) -> str:
    """Return the benchmark's part of the page."""
    columns = {
        "zone": "{market}",
        "nodes": "{nodes}",
        "lost a day": "{losses:.0f}",
        "ready %": "{ready:.1%}",
        "all %": "{restart_all:.1%}",
        "survivors %": "{survivors:.1%}",
        "÷ all": "{survivors_ratio:.2f}",
        "peers": "{peers_ratio:.2f}",
        "bound": "{ready_ratio:.2f}",
    }
    rows = [
        row | {f"{name}_ratio": row[name] / row["restart_all"] for name in ("survivors", "peers", "ready")}
        for row in result["rows"]
    ]
    kinds = list(dict.fromkeys(row["kind"] for row in result["cells"]))
    by_cell = {(row["cell"], row["kind"]): row for row in result["cells"]}
    changes = [
        [cell, *(f"{by_cell[cell, kind][name]:.2f}" for kind in kinds for name in ("survivors", "peers"))]
        for cell in dict.fromkeys(row["cell"] for row in result["cells"] if row["changes"] < 2)
    ]
    heads = [f"{kind}{part}" for kind in kinds for part in ("", " peers")]
    costs, lost = NodeCosts(), [row for row in result["cells"] if row["survivors"] < 1]
    worst = min(result["cells"], key=lambda row: row["survivors"])
    texts = (
        "`make bench-nodes`: the steps that count, of those of as many nodes that are never lost, on the"
        " public traces of 4 and 16 nodes (and of one, for a node in each zone). *All*: after a loss no step"
        " is made until all nodes are there; *survivors*: those that live go on, half of them or more;"
        " *peers*: what a lost node had is in the memory of another; *bound*: no node that is ready ever"
        " pauses. All save at a notice (for 9 of 10 losses). A loss costs survivors"
        f" {costs.stall_seconds:g} s and the steps since the last save"
        f" ({costs.checkpoint_seconds / 60:.0f} minutes at most), with a notice or for a node that joins"
        f" {costs.notice_stall_seconds:g} s, a start {costs.start_seconds:g} s, each as measured"
        " ([0082](../docs/adr/0082-nodes-meet-in-the-checkpoint-folder.md)),"
        f" a boot {costs.boot_seconds:.0f} s.",
        page.table_of(columns, rows),
        f"In one zone survivors of four nodes make {result['goodput_vs_restart_all']:.2f} times the steps of"
        " a restart of all (aim: 1.3, which no rule reaches there: see the bound), because a zone mostly has"
        " all of its nodes or none; another zone is worth more than survivors. With a node in each zone they"
        " decide. The traces have a sample in 195 or 300 s: what is lost and replaced between two is not"
        " seen. Survivors ÷ all, each assumption changed alone:",
        page.table(("changed", *heads), changes),
        f"With up to {TOGETHER} changes together, {len(result['cells'])} cells: survivors are behind a"
        f" restart of all in {len(lost)}, at worst {worst['survivors']:.2f}"
        f" ({worst['kind']}: {worst['cell']}).",
    )
    return "## Trainings of several nodes\n\n" + "\n\n".join(texts) + "\n"
