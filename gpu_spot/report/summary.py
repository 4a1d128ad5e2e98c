"""The figures of a run: as data for ``summary.json``, and as a panel for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gpu_spot.facts.moves import to_json
from gpu_spot.facts.run import Run
from gpu_spot.report.text import counted, duration, number, percent


def summarise(run: Run) -> dict[str, Any]:
    """Return the figures of ``run``, ready for JSON.

    Counts and shares leave the warm-up out, as the ledger does. ``availability``, ``full_fraction``,
    ``cost_vs_on_demand``, ``spot_share`` (of paid instance time) and ``wasted_fraction`` are fractions of 1,
    and so is ``warm_pool_cost``, which comes on top of the cost. ``launch_failures`` are the times at which
    the market began to refuse a side. A training job's run has ``moves``, too.
    """
    ledger, counts = run.ledger, run.ledger.counts
    spot = sum(span.spot * span.ticks for span in ledger.since_warm_up())
    paid = spot + sum(span.on_demand * span.ticks for span in ledger.since_warm_up())
    interruptions, unannounced = counts.get("interruption", 0), counts.get("unannounced", 0)
    return {
        "stack": run.stack,
        "group": run.group,
        "policy": run.policy,
        "target": run.target,
        "hours": run.hours,
        "market": run.market if isinstance(run.market, str) else list(run.market),
        "pools": len(run.pools),
        "pool_size": run.pool_size,
        "seed": run.seed,
        "resources": len(run.resources),
        "resource_types": dict(sorted(Counter(kind for kind, _ in run.resources).items())),
        "availability": ledger.availability,
        "full_fraction": ledger.full_fraction,
        "cost_vs_on_demand": ledger.cost,
        "warm_pool_cost": ledger.standby_cost,
        "spot_share": spot / paid if paid else 0.0,
        "wasted_fraction": ledger.wasted_fraction,
        "interruptions": interruptions,
        "announced": interruptions - unannounced,
        "unannounced": unannounced,
        "notices": counts.get("notice", 0),
        "launch_failures": counts.get("refusal", 0),
        "spot_starts": counts.get("launch-spot", 0),
        "on_demand_starts": counts.get("launch-on-demand", 0),
        "releases": counts.get("release", 0),
        "decisions": len(run.decisions),
        "ticks": run.ticks,
        "ticks_played": run.ticks_played,
        "wall_seconds": round(run.wall_seconds, 3),
        **({} if run.travels is None else {"moves": [to_json(move) for move in run.travels.moves]}),
    }


def headline(summary: Mapping[str, Any]) -> str:
    """Return what the run comes to, in one line."""
    if "moves" in summary:
        return (
            f"1 training job, at work {percent(summary['availability'], 2)} of the time, "
            f"for {percent(summary['cost_vs_on_demand'])} of the on-demand price"
        )
    return (
        f"{counted(summary['target'], 'worker')}, {percent(summary['availability'], 2)} available, "
        f"for {percent(summary['cost_vs_on_demand'])} of the on-demand price"
    )


def source(summary: Mapping[str, Any]) -> str:
    """Return where the market came from, in a few words."""
    market = summary["market"]
    pools = counted(summary["pools"], "pool")
    return f"drawn from the model, {pools}" if market == "model" else f"real traces, {pools}"


def moved(moves: Sequence[Mapping[str, Any]]) -> str:
    """Return what the moves of a job's volume come to, in a few words."""
    if not moves:
        return "its volume stayed where it was"
    typical = duration(median(move["seconds"] for move in moves) / 60)
    away = sum(move["from"]["zone"] != move["to"]["zone"] for move in moves)
    lost = sum(move["steps_lost"] for move in moves)
    broken = sum(not move["content"]["equal"] for move in moves)
    content = f"CONTENT DIFFERS in {broken}" if broken else "same content each time"
    return (
        f"of the volume, {away} to another zone, {typical} in the median; {content}, "
        f"{counted(lost, 'step')} lost"
    )


def render_summary(summary: Mapping[str, Any]) -> RenderableType:
    """Return the panel that ends a rehearsal in the terminal."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(justify="right", style="bold")
    table.add_column(style="dim")
    for name, value, note in _rows(summary):
        table.add_row(name, value, note)
    title = Text.assemble(
        (headline(summary), "bold green" if summary["availability"] >= 0.999 else "bold yellow")
    )
    return Panel(
        Group(title, Text(), table),
        title=f"[bold]{summary['stack']}[/] / {summary['group']}",
        title_align="left",
        box=box.ROUNDED,
        padding=(1, 2),
        expand=False,
    )


def _rows(summary: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [
        ("market", f"{number(summary['hours'])} h", f"{source(summary)}, seed {summary['seed']}"),
        (
            "availability",
            percent(summary["availability"], 2),
            f"the whole target ready {percent(summary['full_fraction'], 2)} of the time",
        ),
        (
            "cost",
            percent(summary["cost_vs_on_demand"]),
            f"of all on-demand; {percent(summary['spot_share'])} of the instance time was spot",
        ),
        *(
            [("warm pool", percent(summary["warm_pool_cost"]), "of all on-demand, on top")]
            if summary["warm_pool_cost"]
            else []
        ),
        (
            "interruptions",
            number(summary["interruptions"]),
            f"{number(summary['announced'])} announced, {number(summary['unannounced'])} without notice",
        ),
        ("launches refused", number(summary["launch_failures"]), "times that spot ran out"),
        (
            "starts",
            number(summary["spot_starts"] + summary["on_demand_starts"]),
            f"{number(summary['spot_starts'])} spot, {number(summary['on_demand_starts'])} on-demand",
        ),
        *([("moves", number(len(summary["moves"])), moved(summary["moves"]))] if "moves" in summary else []),
        (
            "resources",
            number(summary["resources"]),
            f"of {counted(len(summary['resource_types']), 'type')}, policy {summary['policy']}",
        ),
        (
            "wall time",
            f"{summary['wall_seconds']:.1f} s",
            f"{number(summary['ticks_played'])} of {number(summary['ticks'])} ticks had to be played",
        ),
    ]
