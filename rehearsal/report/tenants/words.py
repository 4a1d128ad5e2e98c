"""Texts about a shared host: headline, terminal rows, terms of the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpu_spot.text import counted, number, percent, span
from rehearsal.results.tenancy import TenancyAccount


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


def reading() -> Iterable[tuple[str, str]]:
    """Return the definitions of terms on the page."""
    yield (
        "Without",
        "from the end of the container on one host until it ran on the next, or until the run ended",
    )
    yield "USD", "the machine's cost, split by the tenants' declared CPUs"
