"""The summary of a run: headline, and panel for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gpu_spot.text import counted, duration, number, percent
from rehearsal.report import tenant_texts


def headline(summary: Mapping[str, Any]) -> str:
    """Return the headline of a run."""
    if "moves" in summary:
        return (
            f"1 training job, running {percent(summary['availability'], 2)} of the time, "
            f"for {percent(summary['cost_vs_on_demand'])} of the On-Demand price"
        )
    if "shared_host" in summary:
        return tenant_texts.headline(summary["shared_host"], summary)
    return (
        f"{counted(summary['target'], 'worker')}, {percent(summary['availability'], 2)} available, "
        f"for {percent(summary['cost_vs_on_demand'])} of the On-Demand price"
    )


def source(summary: Mapping[str, Any]) -> str:
    """Return the source of the market, in a few words."""
    market = summary["market"]
    words = "drawn from the model" if market == "model" else "real traces"
    return f"{words}, {counted(summary['pools'], 'pool')}"


def dollars(summary: Mapping[str, Any]) -> str:
    """Return the cost in US dollars, or that no list price is known."""
    if summary["cost_usd"] is None:
        return "no list price for these types in this region"
    return f"${summary['cost_usd']:,.2f} instead of ${summary['on_demand_usd']:,.2f}"


def moved(moves: Sequence[Mapping[str, Any]]) -> str:
    """Return a short summary of the moves of a job's volume."""
    if not moves:
        return "its volume stayed where it was"
    typical = duration(median(move["seconds"] for move in moves) / 60)
    away = sum(move["from"]["zone"] != move["to"]["zone"] for move in moves)
    lost = sum(move["steps_lost"] for move in moves)
    broken = sum(not move["content"]["equal"] for move in moves)
    content = f"CONTENT DIFFERS in {broken}" if broken else "same content each time"
    return f"of the volume, {away} to another zone, median {typical}; {content}, {counted(lost, 'step')} lost"


def render_summary(summary: Mapping[str, Any]) -> RenderableType:
    """Return the panel for the terminal at the end of a rehearsal."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(justify="right", style="bold")
    table.add_column(style="dim")
    for name, value, note in _rows(summary):
        table.add_row(name, value, note)
    is_healthy = summary["availability"] >= 0.999
    title = Text.assemble((headline(summary), "bold green" if is_healthy else "bold yellow"))
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
            f"full target ready {percent(summary['full_fraction'], 2)} of the time, "
            f"none for {duration(summary['minutes_none_ready'])}, "
            f"at most {number(summary['largest_loss'])} lost at once",
        ),
        (
            "cost",
            percent(summary["cost_vs_on_demand"]),
            f"of all On-Demand: {dollars(summary)}; {percent(summary['spot_share'])} of the instance time "
            "was Spot",
        ),
        *(
            [("warm pool", percent(summary["warm_pool_cost"]), "of all On-Demand, in addition")]
            if summary["warm_pool_cost"]
            else []
        ),
        (
            "interruptions",
            number(summary["interruptions"]),
            f"{number(summary['announced'])} announced, {number(summary['unannounced'])} without notice",
        ),
        ("launch failures", number(summary["launch_failures"]), "times without Spot capacity"),
        (
            "starts",
            number(summary["spot_starts"] + summary["on_demand_starts"]),
            f"{number(summary['spot_starts'])} Spot, {number(summary['on_demand_starts'])} On-Demand",
        ),
        *([("moves", number(len(summary["moves"])), moved(summary["moves"]))] if "moves" in summary else []),
        *(tenant_texts.rows(summary["shared_host"]) if "shared_host" in summary else []),
        (
            "resources",
            number(summary["resources"]),
            f"of {counted(len(summary['resource_types']), 'type')}, policy {summary['policy']}",
        ),
        (
            "wall time",
            f"{summary['wall_seconds']:.1f} s",
            f"{number(summary['ticks_played'])} of {number(summary['ticks'])} ticks were simulated",
        ),
    ]
