"""The state of a stack on the terminal; plain text if the output is not a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpu_spot.jobs.text import jobs_table
from gpu_spot.status.images import OLD_SECONDS
from gpu_spot.status.snapshot import HEALTHY, PHASES, GroupSnapshot, InstancePhase, StackSnapshot
from gpu_spot.text import clock, counted, span
from lambdas.core.model import PurchaseOption
from lambdas.core.money.costs import HourlyCost
from lambdas.core.spot_request_status import StatusClass

RUNBOOK: Final = "docs/runbook.md"
_STYLES: Final[dict[InstancePhase, str]] = {"ready": "green", "booting": "cyan", "draining": "yellow"}


def view(snapshot: StackSnapshot) -> RenderableType:
    """Return the whole view; active alarms come first."""
    parts: list[RenderableType] = [_headline(snapshot), *_alarms(snapshot), _groups(snapshot)]
    parts += _warm_pools(snapshot)
    if any(group.instances for group in snapshot.groups):
        parts.append(_pools(snapshot))
    if snapshot.groups:
        parts.append(_spot_requests(snapshot))
    parts += _images(snapshot)
    if any(group.workers for group in snapshot.groups):
        parts.append(_workers(snapshot))
    if snapshot.jobs:
        parts.append(jobs_table(snapshot.jobs, snapshot.stack))
    parts += [*_declared(snapshot), _decisions(snapshot)]
    parts += [
        Text(f"{group.name}: {warning}", style="yellow")
        for group in snapshot.groups
        for warning in group.warnings
    ]
    return Group(*parts, Text(f"{counted(snapshot.calls, 'AWS API call')}", style="dim"))


def money(cost: HourlyCost | None) -> str:
    """Return an hourly cost and its share of what the fallback's On-Demand would cost."""
    if cost is None:
        return "unknown"
    share = f" ({100 * cost.paid / cost.on_demand:.0f} % of On-Demand)" if cost.on_demand else ""
    return f"${cost.paid:,.2f}/h{share}"


def _headline(snapshot: StackSnapshot) -> Text:
    state = ("is healthy", "green") if snapshot.is_healthy else ("needs attention", "bold red")
    causes = ", ".join(
        f"{group.name} {group.condition}" for group in snapshot.groups if group.condition not in HEALTHY
    )
    return Text.assemble(
        (snapshot.stack, "bold"),
        f" in {snapshot.region} ",
        state,
        f"{causes and f' ({causes})'}, {clock(snapshot.now)} UTC, {money(snapshot.cost)}",
    )


def _alarms(snapshot: StackSnapshot) -> Iterator[RenderableType]:
    for alarm in snapshot.alarms:
        yield Text.assemble(
            ("ALARM ", "bold red"),
            (alarm.name, "bold"),
            f" for {span(snapshot.now - alarm.since)}: {alarm.description}",
        )
    if snapshot.alarms:
        yield Text(f"runbook: {RUNBOOK}", style="dim")


def _groups(snapshot: StackSnapshot) -> Table:
    table = _table("groups, in slots", "group", "state", "target", *PHASES, "missing", "mode", "cost")
    table.caption = "cost: instances only, with the On-Demand prices of the last update"
    table.caption_justify = "left"
    for group in snapshot.groups:
        state = Text(group.condition, style="green" if group.condition in HEALTHY else "bold red")
        if group.error:
            table.add_row(group.name, state, *[""] * (len(PHASES) + 3), Text(group.error, style="bold red"))
            continue
        is_due = group.missing_slots and group.condition not in HEALTHY
        table.add_row(
            group.name,
            state,
            str(group.target),
            *(_slots_in_phase(group, phase) for phase in PHASES),
            Text(str(group.missing_slots), style="bold red" if is_due else "dim"),
            group.mode,
            money(group.cost),
        )
    return table


def _warm_pools(snapshot: StackSnapshot) -> Iterator[Text]:
    for group in snapshot.groups:
        if group.warm_pool_lacks_since is not None:
            age = span(snapshot.now - group.warm_pool_lacks_since)
            reason = f": {group.warm_pool_lacks}" if group.warm_pool_lacks else ""
            yield Text(f"{group.name}: the warm pool is below its size for {age}{reason}", style="yellow")


def _slots_in_phase(group: GroupSnapshot, phase: InstancePhase) -> Text:
    """Return the slots in a phase, and how many of them are On-Demand, interrupted or on premises."""
    slots = group.slots(phase)
    instances = [instance for instance in group.instances if group.phase_of(instance) == phase]
    on_demand = sum(
        instance.slots for instance in instances if instance.purchase_option is PurchaseOption.ON_DEMAND
    )
    parts = [f"{on_demand} On-Demand"] if on_demand else []
    if phase == "ready" and group.interrupted_slots:
        parts.append(f"{group.interrupted_slots} interrupted")
    if phase == "ready" and group.on_premises_slots:
        parts.append(f"and {group.on_premises_slots} on premises")
    text = f"{slots} ({', '.join(parts)})" if parts else str(slots)
    return Text(text, style=_STYLES[phase] if slots else "dim")


def _pools(snapshot: StackSnapshot) -> Table:
    """Return the instances by phase: one line for each type, zone and market of a group."""
    table = _table("instances", "group", "type", "zone", "market", *PHASES)
    for group in snapshot.groups:
        pools = sorted(
            {(i.pool.instance_type, i.pool.zone, i.purchase_option.value) for i in group.instances}
        )
        for pool in pools:
            phases = [
                group.phase_of(i)
                for i in group.instances
                if (i.pool.instance_type, i.pool.zone, i.purchase_option.value) == pool
            ]
            table.add_row(group.name, *pool, *(str(phases.count(phase)) for phase in PHASES))
    return table


def _images(snapshot: StackSnapshot) -> Iterator[Text]:
    for group in snapshot.groups:
        for image in group.images or ():
            age = None if image.created_at is None else snapshot.now - image.created_at
            text = "deregistered, age unknown" if age is None else f"{age / 86_400:.0f} days old"
            style = "yellow" if age is None or age > OLD_SECONDS else "dim"
            yield Text(f"{group.name}: {image.image} on {counted(image.count, 'instance')}: {text}", style)


def _spot_requests(snapshot: StackSnapshot) -> Table:
    """Return the Spot requests: below each group a line for each status code and state."""
    table = _table("Spot requests", "group, code", "state", "count", "age", "meaning")
    table.columns[0].no_wrap = True
    for group in snapshot.groups:
        if group.spot_requests is None:
            table.add_row(group.name, Text("unknown", style="yellow"), "", "", "not readable")
            continue
        table.add_row(group.name, "" if group.spot_requests else Text("none", style="dim"))
        for count in group.spot_requests:
            is_failure = count.status_class is not StatusClass.NOT_A_FAILURE
            meaning = Text(count.meaning, style="yellow" if is_failure else "dim")
            age = span(snapshot.now - count.updated_at)
            table.add_row(f" {count.code}", count.state, str(count.count), age, meaning)
    return table


def _workers(snapshot: StackSnapshot) -> Table:
    table = _table("workers", "group", "origin", "version", "state", "workers")
    for group in snapshot.groups:
        for count in group.workers:
            is_silent = count.phase == "silent"
            phase = Text("not reporting" if is_silent else count.phase, style="red" if is_silent else "")
            table.add_row(group.name, count.origin, count.version or "–", phase, str(count.count))
    return table


def _declared(snapshot: StackSnapshot) -> Iterator[Text]:
    waits_by_group = {group.name: group.tenant_waits for group in snapshot.groups}
    for host, tenants in snapshot.declared.tenants.items():
        yield Text(f"tenants of {host}: {', '.join(tenants)}")
        waits = waits_by_group.get(host)
        if waits is None and host in waits_by_group:
            yield Text(f" {host}: unknown whether its tenants run", style="yellow")
        for wait in waits or ():
            yield Text(f" {wait.tenant} does not run as listed: {wait.reason}", style="yellow")
    if snapshot.declared.on_kubernetes:
        yield Text(f"on Kubernetes, not included: {', '.join(snapshot.declared.on_kubernetes)}")


def _decisions(snapshot: StackSnapshot) -> RenderableType:
    if not snapshot.decisions:
        return Text("the controller took no action in the last three hours", style="dim")
    table = _table("recent decisions", "time (UTC)", "group", "actions", "reason")
    for decision in snapshot.decisions:
        table.add_row(clock(decision.at)[11:], decision.group, "; ".join(decision.actions), decision.reason)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
