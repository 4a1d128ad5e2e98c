"""A stack on the terminal: what rings, groups, workers, jobs, decisions; plain where there is no terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpu_spot.jobs.text import jobs_table
from gpu_spot.status.seen import PHASES, GroupSeen, InstancePhase, StackSeen, phase_of
from gpu_spot.text import clock, counted, span
from lambdas.core.model import Market
from lambdas.core.money.costs import HourlyCost

RUNBOOK: Final = "docs/operations.md#alarms"
_STYLES: Final[dict[InstancePhase, str]] = {"ready": "green", "booting": "cyan", "draining": "yellow"}


def view(seen: StackSeen) -> RenderableType:
    """Return the whole view; what rings comes first."""
    parts: list[RenderableType] = [_headline(seen), *_alarms(seen), _groups(seen)]
    if any(group.instances for group in seen.groups):
        parts.append(_pools(seen))
    if any(group.workers for group in seen.groups):
        parts.append(_workers(seen))
    if seen.jobs:
        parts.append(jobs_table(seen.jobs, seen.stack))
    parts += [*_declared(seen), _decisions(seen)]
    parts += [Text(f"{group.name}: {one}", style="yellow") for group in seen.groups for one in group.unread]
    return Group(*parts, Text(f"{counted(seen.calls, 'call')} to AWS for this view", style="dim"))


def money(cost: HourlyCost | None) -> str:
    """Return what something costs an hour, against all of it on-demand."""
    if cost is None:
        return "not known"
    share = f" ({100 * cost.paid / cost.on_demand:.0f} % of on-demand)" if cost.on_demand else ""
    return f"${cost.paid:,.2f}/h{share}"


def _headline(seen: StackSeen) -> Text:
    state = ("is well", "green") if seen.is_well else ("needs a look", "bold red")
    return Text.assemble(
        (seen.stack, "bold"), f" in {seen.region} ", state, f", {clock(seen.now)} UTC, {money(seen.cost)}"
    )


def _alarms(seen: StackSeen) -> Iterator[RenderableType]:
    for one in seen.alarms:
        yield Text.assemble(
            ("ALARM ", "bold red"), (one.name, "bold"), f" for {span(seen.now - one.since)}: {one.says}"
        )
    if seen.alarms:
        yield Text(f"what to do: {RUNBOOK}", style="dim")


def _groups(seen: StackSeen) -> Table:
    table = _table("groups", "group", "target", *PHASES, "missing", "mode", "costs")
    for group in seen.groups:
        if group.trouble:
            table.add_row(group.name, *[""] * (len(PHASES) + 2), "", Text(group.trouble, style="bold red"))
            continue
        table.add_row(
            group.name,
            str(group.target),
            *(_split(group, phase) for phase in PHASES),
            Text(str(group.missing), style="bold red" if group.missing else "dim"),
            group.mode,
            money(group.cost),
        )
    return table


def _split(group: GroupSeen, phase: InstancePhase) -> Text:
    """Return the slots in a phase, and how many of them are on-demand or elsewhere."""
    slots = group.slots(phase)
    own = [one for one in group.instances if phase_of(one) == phase]
    bought = sum(one.slots for one in own if one.market is Market.ON_DEMAND)
    more = [f"{bought} on-demand"] if bought else []
    if phase == "ready" and group.elsewhere:
        more.append(f"{group.elsewhere} on premises beside")
    told = f"{slots} ({', '.join(more)})" if more else str(slots)
    return Text(told, style=_STYLES[phase] if slots else "dim")


def _pools(seen: StackSeen) -> Table:
    """Return who is where: one line for each type, zone and market of a group."""
    table = _table("instances", "group", "type", "zone", "market", *PHASES)
    for group in seen.groups:
        places = sorted({(i.pool.instance_type, i.pool.zone, i.market.value) for i in group.instances})
        for place in places:
            own = [
                phase_of(i)
                for i in group.instances
                if (i.pool.instance_type, i.pool.zone, i.market.value) == place
            ]
            table.add_row(group.name, *place, *(str(own.count(phase)) for phase in PHASES))
    return table


def _workers(seen: StackSeen) -> Table:
    table = _table("workers", "group", "where", "version", "state", "workers")
    for group in seen.groups:
        for one in group.workers:
            style = "red" if one.phase == "silent" else ""
            table.add_row(
                group.name, one.origin, one.version or "–", Text(one.phase, style=style), str(one.count)
            )
    return table


def _declared(seen: StackSeen) -> Iterator[Text]:
    for host, tenants in seen.declared.tenants.items():
        yield Text(f"tenants of {host}: {', '.join(tenants)}")
    if seen.declared.on_kubernetes:
        yield Text(f"on Kubernetes, not looked at here: {', '.join(seen.declared.on_kubernetes)}")


def _decisions(seen: StackSeen) -> RenderableType:
    if not seen.decisions:
        return Text("no decision of the controller did anything within the last three hours", style="dim")
    table = _table("last decisions", "at (UTC)", "group", "did", "because")
    for one in seen.decisions:
        table.add_row(clock(one.at)[11:], one.group, "; ".join(one.actions), one.reason)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
