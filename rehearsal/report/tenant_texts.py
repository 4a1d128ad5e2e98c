"""A shared host on the page and in the terminal: its tenants and their moves between hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from itertools import groupby
from typing import Any

from gpu_spot.text import CAUSES, clock, counted, number, percent, span
from rehearsal.report.job import section
from rehearsal.results.tenancy import PlayedTenant, Return, TenancyAccount


def headline(shared: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """Return the headline; ``shared`` is the host's part of ``summary.json``."""
    return (
        f"{counted(len(shared['tenants']), 'tenant')} on one host, served "
        f"{percent(summary['availability'], 2)} of the time, "
        f"for {percent(summary['cost_vs_on_demand'])} of the On-Demand price"
    )


def rows(shared: Mapping[str, Any]) -> Iterable[tuple[str, str, str]]:
    """Return name, value and note of each tenant, and of the returns."""
    returns = shared["returns"]
    broken = sum(entry["before"] != entry["after"] for entry in returns)
    content = f"CONTENT DIFFERS in {broken}" if broken else "same content each time"
    away = sum(entry["from_zone"] != entry["to_zone"] for entry in returns)
    yield "returns", number(len(returns)), f"of a tenant to another host, {away} to another zone; {content}"
    for name, is_moving in (("moving", True), ("without a host", False)):
        if absences := [entry for entry in shared["away"] if entry["moving"] is is_moving]:
            names = ", ".join(f"{entry['tenant']} for {span(entry['seconds'])}" for entry in absences)
            yield name, number(len(absences)), f"at the end of the run: {names}"
    for name, tenant in shared["tenants"].items():
        usd = "" if tenant["usd"] is None else f"; {tenant['usd']:.2f} USD by its CPUs"
        yield name, f"{tenant['cpus']} CPUs", f"{span(tenant['seconds_without'])} without a host{usd}"


def simulated(tenancy: TenancyAccount) -> Iterable[tuple[str, str]]:
    """Return the page's terms and texts about what was simulated."""
    yield "Agent", "the tenant supervisor's own code, with the deployed tenant list, user data and volumes"
    yield "Tenants", "simulated containers: each writes to its volume at its start"
    yield "EBS", "volume and snapshot times are assumed"
    if tenancy.hour_price is not None:
        yield "Machine", f"{tenancy.hour_price:g} USD per hour On-Demand, the cheapest of its types"


def tables(tenancy: TenancyAccount) -> str:
    """Return the sections of the page."""
    tenants = "\n".join(_tenant(name, tenant) for name, tenant in tenancy.tenants.items())
    together = groupby(tenancy.returns, key=lambda move: move.ended)
    losses = "\n".join(_loss(list(moves)) for _, moves in together)
    has = '<th scope="col">Tenant</th><th scope="col">Has</th>'
    numbers = "".join(f'<th scope="col" class="n">{name}</th>' for name in ("without", "USD"))
    heads = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("Left (UTC)", "From → to", "Served again after", "Content")
    )
    lost = (
        "Minutes and seconds from the end of each tenant's container until it ran on the next host, and "
        "whether the content of its volume was the same."
    )
    return "\n".join(
        (
            section("tenants", "Tenants", _caption(tenancy), has + numbers, tenants),
            section("returns", "When the host was lost", lost, heads, losses),
        )
    )


def _caption(tenancy: TenancyAccount) -> str:
    absences = "".join(
        f" At the end of the run {absence.tenant} was {'moving' if absence.moving else 'without a host'} for "
        f"{span(absence.seconds)}."
        for absence in tenancy.away
    )
    return (
        "Time without a host covers the whole run; US dollars cover the time after the warm-up, "
        f"like the share of the On-Demand price.{absences}"
    )


def _tenant(name: str, tenant: PlayedTenant) -> str:
    usd = "–" if tenant.usd is None else f"{tenant.usd:.2f}"
    values = {"without": span(tenant.seconds_without), "USD": usd}
    cells = "".join(f'<td class="n" data-label="{label}">{value}</td>' for label, value in values.items())
    return (
        f"          <tr><td>{escape(name)}</td>"
        f"<td>{tenant.cpus} CPUs, {tenant.cpu_mode}<small>{tenant.memory_gib} GiB, GPUs: "
        f"{escape(tenant.gpus)}, volume {tenant.data_gib} GiB</small></td>{cells}</tr>"
    )


def _loss(together: list[Return]) -> str:
    first = together[0]
    time = f'<button class="time" value="{round(1000 * first.ended)}">{clock(first.ended)}</button>'
    zones = "; ".join(sorted({f"{move.from_zone} → {move.to_zone}" for move in together}))
    served = ", ".join(f"{move.tenant} {span(move.served - move.ended)}" for move in together)
    broken = ", ".join(move.tenant for move in together if move.before != move.after)
    content = f"DIFFERENT: {broken}" if broken else f"equal, {counted(len(together), 'volume')}"
    digests = ", ".join(move.after.digest[:8] for move in together)
    return (
        f"          <tr><td>{time}<small>{CAUSES[first.cause]}</small></td><td>{escape(zones)}</td>"
        f"<td>{escape(served)}</td><td>{escape(content)}<small>{digests}</small></td></tr>"
    )
