"""The figures of a run in words, and as a panel for the terminal."""

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
from rehearsal.report import serving
from rehearsal.report.load import words as load_words
from rehearsal.report.tenants import words as tenant_words


def headline(summary: Mapping[str, Any]) -> str:
    """Return what the run comes to, in one line."""
    if "moves" in summary:
        return (
            f"1 training job, at work {percent(summary['availability'], 2)} of the time, "
            f"for {percent(summary['cost_vs_on_demand'])} of the on-demand price"
        )
    if "shared_host" in summary:
        return tenant_words.headline(summary["shared_host"], summary)
    if "service" in summary:
        return serving.headline(summary["service"], summary["cost_vs_on_demand"])
    if "load" in summary:
        return load_words.headline(summary["load"])
    return (
        f"{counted(summary['target'], 'worker')}, {percent(summary['availability'], 2)} available, "
        f"for {percent(summary['cost_vs_on_demand'])} of the on-demand price"
    )


def source(summary: Mapping[str, Any]) -> str:
    """Return where the market came from, in a few words."""
    market = summary["market"]
    whence = {"model": "drawn from the model", "script": "written for this"}
    words = whence.get(market, "real traces") if isinstance(market, str) else "real traces"
    return f"{words}, {counted(summary['pools'], 'pool')}"


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


def ended(job: Mapping[str, Any]) -> str:
    """Return what became of a job whose own command was run, in a few words."""
    command = f"{' '.join(job['command'])} of {job['repository']} at {job['revision'][:12]}"
    if job["state"] != "done":
        return command
    bits = "the bits" if job["intact"] else "NOT the bits"
    return f"{command}; its results are {bits} of a run that nobody interrupted"


def render_summary(summary: Mapping[str, Any]) -> RenderableType:
    """Return the panel that ends a rehearsal in the terminal."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(justify="right", style="bold")
    table.add_column(style="dim")
    for name, value, note in _rows(summary):
        table.add_row(name, value, note)
    is_well = summary["availability"] >= 0.999
    if "service" in summary:
        is_well = serving.is_whole(summary["service"])
    if "load" in summary:
        is_well = load_words.is_within_limit(summary["load"])
    title = Text.assemble((headline(summary), "bold green" if is_well else "bold yellow"))
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
        *([("job", summary["job"]["state"], ended(summary["job"]))] if "job" in summary else []),
        *(serving.rows(summary["service"]) if "service" in summary else []),
        *(load_words.rows(summary["load"]) if "load" in summary else []),
        *(tenant_words.rows(summary["shared_host"]) if "shared_host" in summary else []),
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
