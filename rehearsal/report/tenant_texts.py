"""A shared host on the page and in the terminal: its tenants and their moves between hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from itertools import groupby
from typing import Any

from gpu_spot.text import CAUSES, clock, counted, number, percent, span
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
    broken = sum(not entry["equal"] for entry in returns)
    content = f"CONTENT DIFFERS in {broken}" if broken else "same content each time"
    away = sum(entry["from"] != entry["to"] for entry in returns)
    yield "returns", number(len(returns)), f"of a tenant to another host, {away} to another zone; {content}"
    for name, is_moving in (("moving", True), ("without a host", False)):
        if absences := [entry for entry in shared["away"] if entry["moving"] is is_moving]:
            names = ", ".join(f"{entry['tenant']} for {span(entry['seconds'])}" for entry in absences)
            yield name, number(len(absences)), f"at the end of the run: {names}"
    for name, tenant in shared["tenants"].items():
        usd = f"; {tenant['usd_by_declared']:.2f} USD by its CPUs" if "usd_by_declared" in tenant else ""
        yield name, f"{tenant['cpus']} CPUs", f"{span(tenant['seconds_without'])} without a host{usd}"


def simulated(tenancy: TenancyAccount) -> Iterable[tuple[str, str]]:
    """Return the page's terms and texts about what was simulated."""
    yield "Agent", "the tenant supervisor's own code, with the deployed tenant list, user data and volumes"
    yield (
        "Tenants",
        "simulated containers: each writes to its volume at its start",
    )
    yield "EBS", "volume and snapshot times are assumed"
    if tenancy.hour_price is not None:
        yield "Machine", f"{tenancy.hour_price:g} USD per hour On-Demand, the cheapest of its types"


def tables(tenancy: TenancyAccount) -> str:
    """Return the sections of the page."""
    tenants = "\n".join(_tenant(tenancy, tenant) for tenant in tenancy.tenants)
    losses = "\n".join(
        _loss(list(together))
        for _, together in groupby(tenancy.returns, key=lambda tenant_return: tenant_return.ended)
    )
    heads = "".join(f'<th scope="col" class="n">{name}</th>' for name in ("without", "USD"))
    return f"""  <section class="card" id="tenants">
    <h2>Tenants</h2>
    <p class="caption">{escape(_caption(tenancy))}</p>
    <div class="scroll" tabindex="0" role="region" aria-label="Tenants">
      <table class="moves">
        <thead><tr><th scope="col">Tenant</th><th scope="col">Has</th>{heads}</tr></thead>
        <tbody>
{tenants}
        </tbody>
      </table>
    </div>
  </section>
  <section class="card" id="returns">
    <h2>When the host was lost</h2>
    <p class="caption">Minutes and seconds from the end of each tenant's container until it ran on the next \
host, and whether the content of its volume was the same.</p>
    <div class="scroll" tabindex="0" role="region" aria-label="When the host was lost">
      <table class="moves">
        <thead><tr><th scope="col">Left (UTC)</th><th scope="col">From → to</th>\
<th scope="col">Served again after</th><th scope="col">Content</th></tr></thead>
        <tbody>
{losses}
        </tbody>
      </table>
    </div>
  </section>"""


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


def _tenant(tenancy: TenancyAccount, tenant: PlayedTenant) -> str:
    money = tenancy.money().get(tenant.name)
    values = {"without": span(tenancy.outage(tenant.name)), "USD": "–" if money is None else f"{money:.2f}"}
    cells = "".join(f'<td class="n" data-label="{label}">{value}</td>' for label, value in values.items())
    mode = "pinned" if tenant.pinned else "shared"
    return (
        f"          <tr><td>{escape(tenant.name)}</td>"
        f"<td>{tenant.cpus} CPUs, {mode}<small>{tenant.memory_gib} GiB, GPUs: {escape(tenant.gpus)}, "
        f"volume {tenant.data_gib} GiB</small></td>{cells}</tr>"
    )


def _loss(together: list[Return]) -> str:
    first = together[0]
    time = f'<button class="time" value="{round(1000 * first.ended)}">{clock(first.ended)}</button>'
    zones = "; ".join(
        sorted({f"{tenant_return.from_zone} → {tenant_return.to_zone}" for tenant_return in together})
    )
    served = ", ".join(f"{tenant_return.tenant} {span(tenant_return.seconds)}" for tenant_return in together)
    broken = [tenant_return.tenant for tenant_return in together if not tenant_return.intact]
    content = f"DIFFERENT: {', '.join(broken)}" if broken else f"equal, {counted(len(together), 'volume')}"
    digests = ", ".join(tenant_return.after.digest[:8] for tenant_return in together)
    return (
        f"          <tr><td>{time}<small>{CAUSES[first.cause]}</small></td><td>{escape(zones)}</td>"
        f"<td>{escape(served)}</td><td>{escape(content)}<small>{digests}</small></td></tr>"
    )
