"""The page of a run: a self-contained HTML file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from pathlib import PurePath
from string import Template
from typing import Any, Final

from gpu_spot.status.decisions import DecisionLine
from gpu_spot.text import clock, counted, duration, number, percent
from market.rules import NOTICE_SECONDS, TICK_SECONDS
from rehearsal.report import series, tenant_texts
from rehearsal.report.figures import figures
from rehearsal.report.job import moves_table
from rehearsal.report.plotting import Figure
from rehearsal.report.summary import dollars, headline, source
from rehearsal.results.run import Run
from rehearsal.results.summary import summarise

DECISIONS: Final = 200
"""Maximum number of decisions in the table."""


def render(run: Run) -> str:
    """Return the HTML page with styles, script and data embedded."""
    summary = summarise(run)
    drawn = figures(run)
    shown = noteworthy(run)
    acting = sum(bool(d.actions) for d in run.decisions)
    limit = f"; {len(shown)} are shown, those near shortages first" if len(shown) < acting else ""
    kinds = summary["resource_types"]
    return Template(_asset("page.html")).substitute(
        title=escape(f"{run.stack}/{run.group}: {headline(summary)}"),
        stack=escape(run.stack),
        group=escape(run.group),
        headline=escape(headline(summary)),
        lead=escape(_lead(run, summary)),
        tiles="\n".join(_tile(*tile) for tile in _tiles(summary)),
        figures="\n".join(map(_figure, drawn)),
        moves="" if run.migrations is None else f"\n{moves_table(run.migrations)}",
        tenants="" if run.tenancy is None else f"\n{tenant_texts.tables(run.tenancy)}",
        decisions_caption=escape(
            f"{counted(len(run.decisions), 'decision')}, {number(acting)} of them with actions{limit}. "
            "Click a time to zoom the timelines."
        ),
        decisions="\n".join(map(_row, shown)),
        simulated=_definitions(_simulated(run, summary)),
        resources_summary=escape(
            f"{counted(summary['resources'], 'resource')} of {counted(len(kinds), 'type')}"
        ),
        resources="\n".join(
            f"<tr><td>{escape(kind)}</td><td>{count}</td></tr>" for kind, count in kinds.items()
        ),
        summary=_embedded(summary),
        data=_embedded([figure.to_json() for figure in drawn]),
        css=_asset("page.css"),
        script=_asset("page.js"),
    )


def noteworthy(run: Run, limit: int = DECISIONS) -> list[DecisionLine]:
    """Return at most ``limit`` decisions with actions, by time: those near shortages, then the latest."""
    acting = [d for d in run.decisions if d.actions]
    edge = 10 * TICK_SECONDS
    moments = [(run.at(s.tick) - edge, run.at(s.tick + s.ticks) + edge) for s in series.shortages(run)]
    pressing = {id(d) for d in acting if any(begin <= d.at <= end for begin, end in moments)}
    chosen = sorted(acting, key=lambda d: (id(d) in pressing, d.at), reverse=True)[:limit]
    return sorted(chosen, key=lambda d: d.at)


def _lead(run: Run, summary: Mapping[str, Any]) -> str:
    survived = counted(summary["interruptions"], "interruption")
    return (
        f"{duration(60 * run.hours)} of a Spot market ({source(summary)}): {survived}, "
        f"{counted(summary['launch_failures'], 'time')} without Spot capacity, and "
        f"{counted(summary['on_demand_starts'], 'On-Demand start')} as replacement."
    )


def _tiles(summary: Mapping[str, Any]) -> list[tuple[str, str, str, float, str]]:
    """Return the tiles: (key of the summary, title, shown value, value, note)."""
    cost = summary["cost_vs_on_demand"]
    saved = f"saves {percent(1 - cost)}" if cost < 1 else "saves nothing"
    if standby := summary["warm_pool_cost"]:
        saved += f"; the warm pool adds {percent(standby)}"
    counts = {
        "interruptions": (
            "Interruptions",
            f"{number(summary['announced'])} announced, {number(summary['unannounced'])} without notice",
        ),
        "launch_failures": ("Spot unavailable", f"{counted(summary['spot_starts'], 'Spot start')} succeeded"),
        "on_demand_starts": (
            "On-Demand starts",
            f"{percent(1 - summary['spot_share'])} of the billed instance time",
        ),
    }
    return [
        (
            "availability",
            "Availability",
            percent(summary["availability"], 2),
            summary["availability"],
            f"full target ready {percent(summary['full_fraction'], 2)} of the time",
        ),
        (
            "minutes_none_ready",
            "No worker ready",
            duration(summary["minutes_none_ready"]),
            summary["minutes_none_ready"],
            f"of {duration(60 * summary['hours'])}; "
            f"at most {counted(summary['largest_loss'], 'instance')} lost at once",
        ),
        ("cost_vs_on_demand", "Cost vs On-Demand", percent(cost), cost, f"{dollars(summary)}; {saved}"),
        *((key, title, number(summary[key]), summary[key], note) for key, (title, note) in counts.items()),
    ]


def _simulated(run: Run, summary: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    rules = run.rules
    yield "Stack", f"{run.stack}, group {run.group}, target {run.target}"
    yield "Policy", run.policy
    if run.market == "model":
        yield "Market", "drawn from a model fitted to real traces; use --trace to replay a real one"
    else:
        yield "Market", f"replayed from {', '.join(PurePath(path).name for path in run.market)}"
    yield "Pools", ", ".join(run.pools.values())
    yield "Pool size", f"{counted(run.pool_size, 'instance')} for each instance of a sample"
    yield (
        "Time",
        (
            f"{clock(run.at(0))} to {clock(run.at(run.ticks))} UTC, ticks of {TICK_SECONDS:g} s; "
            f"{number(run.ticks_played)} of {number(run.ticks)} simulated in {run.wall_seconds:.1f} s"
        ),
    )
    yield "Warm-up", f"the first {duration(rules.warm_up_ticks)} (shaded) are not counted"
    yield "Notice", f"{percent(rules.notice, 0)} of the interruptions have a notice of {NOTICE_SECONDS:g} s"
    is_counted = run.migrations is None and run.tenancy is None
    ready = "until ready" if is_counted else "until the agent starts"
    on_demand = rules.spot_cold_start if rules.warm_instances == 0 else rules.on_demand_cold_start
    yield "Boot", f"Spot {rules.spot_cold_start:g} s, On-Demand {on_demand:g} s {ready}"
    yield "Drain", f"an instance stops receiving work {rules.drain_seconds:g} s before its termination"
    listed = "" if run.hour_price is None else f", ${run.hour_price:g} an hour by the built-in price list"
    yield "Spot price", f"{percent(rules.spot_price, 0)} of On-Demand{listed}"
    if run.migrations is not None:
        yield "Agent", "the node agent's own code, started from the instance's user data"
        yield "Training", "a simulated process that reads, saves and resumes, but does not compute"
        yield "EBS", "volume and snapshot times are assumed"
    if run.tenancy is not None:
        yield from tenant_texts.simulated(run.tenancy)
    yield "Seed", str(summary["seed"])


def _tile(key: str, title: str, shown: str, value: float, note: str) -> str:
    return (
        f'    <div class="tile"><h2>{escape(title)}</h2>'
        f'<data id="total-{key}" value="{value!r}">{escape(shown)}</data><p>{escape(note)}</p></div>'
    )


def _figure(figure: Figure) -> str:
    return (
        f'    <figure id="{figure.id}">\n'
        f"      <figcaption><h2>{escape(figure.title)}</h2><p>{escape(figure.caption)}</p></figcaption>\n"
        f'      <div class="plot" role="img" aria-label="{escape(figure.alt)}" '
        f'style="min-height:{figure.height}px"></div>\n'
        "    </figure>"
    )


def _row(decision: DecisionLine) -> str:
    actions = "".join(f"<li>{escape(action)}</li>" for action in decision.actions)
    time = f'<button class="time" value="{round(1000 * decision.at)}">{clock(decision.at)}</button>'
    return f"          <tr><td>{time}</td><td><ul>{actions}</ul></td><td>{escape(decision.reason)}</td></tr>"


def _definitions(pairs: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"        <dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in pairs)


def _embedded(value: Any) -> str:
    """Return JSON that cannot close its enclosing script element."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def _asset(name: str) -> str:
    return (files("rehearsal.report") / name).read_text(encoding="utf-8").rstrip("\n")
