"""The bill of a shared host: its lines add up to what the host cost, whatever tenants did."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_spot.tenants.bill import RATES, BillLine, HostHour, Resources, TenantUse, divide, to_csv
from userdata.agent.tenants.usage import CpuUsage, compute_accounts

HOST = Resources(gpu_seconds=4 * 3600, cpu_seconds=48 * 3600, memory_gib_hours=192)
DOLLARS = 5.672


def use(gpus: float, cpus: float, gib: float, **cpu: float) -> TenantUse:
    return TenantUse(
        gpus * 3600, cpus * 3600, cpu.get("used", 0), cpu.get("borrowed", 0), cpu.get("lent", 0), gib
    )


def lines_of(hours: list[HostHour]) -> dict[str, BillLine]:
    return {line.name or line.kind: line for line in divide(hours)}


def rows(hours: list[HostHour]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv("2026-11", {"lab": divide(hours)}))))


def test_a_tenant_with_the_whole_machine_pays_for_it() -> None:
    lines = lines_of([HostHour({"ada": use(4, 48, 192)}, HOST, DOLLARS, 1.0)])
    assert lines["ada"].dollars == lines["host"].dollars == DOLLARS
    assert lines["idle"].dollars == 0


def test_gpus_and_memory_count_by_what_is_reserved() -> None:
    lines = lines_of([HostHour({"ada": use(2, 24, 96), "bo": use(1, 12, 48)}, HOST, DOLLARS, 1.0)])
    assert lines["ada"].dollars == pytest.approx(DOLLARS / 2, abs=1e-4)
    assert lines["bo"].dollars == pytest.approx(DOLLARS / 4, abs=1e-4)
    assert lines["idle"].dollars == pytest.approx(DOLLARS / 4, abs=1e-4)


def test_lent_cpu_time_is_paid_by_its_borrower() -> None:
    alone = lines_of([HostHour({"ada": use(0, 24, 0), "bo": use(0, 24, 0)}, HOST, DOLLARS, 1.0)])
    lending = {"ada": use(0, 24, 0, lent=36_000), "bo": use(0, 24, 0, borrowed=36_000)}
    lent = lines_of([HostHour(lending, HOST, DOLLARS, 1.0)])
    moved = DOLLARS * 36_000 / 3600 * RATES.cpu_seconds / HOST.weight
    for name, change in (("ada", -moved), ("bo", moved), ("idle", 0.0)):
        before, after = alone[name].dollars, lent[name].dollars
        assert before is not None
        assert after == pytest.approx(before + change, abs=2e-4)


def test_an_hour_without_a_tenant_is_idle() -> None:
    boot = HostHour({}, Resources(), DOLLARS, 1.0)
    lines = lines_of([boot, HostHour({"ada": use(4, 48, 192)}, HOST, DOLLARS, 1.0)])
    assert (lines["ada"].dollars, lines["idle"].dollars) == (DOLLARS, DOLLARS)


def test_an_unknown_price_is_unknown_and_counted() -> None:
    unknown = HostHour({"ada": use(4, 48, 192)}, HOST, 0.0, 0.0)
    assert {row["usd"] for row in rows([unknown])} == {"unknown"}
    assert {row["hours_price_unknown"] for row in rows([unknown])} == {"1.00"}
    half = HostHour({"bo": use(4, 48, 192)}, HOST, DOLLARS / 2, 0.5)
    found = {row["tenant"] or row["line"]: row for row in rows([unknown, half])}
    assert (found["ada"]["usd"], found["bo"]["usd"]) == ("unknown", "2.8360")
    assert (found["host"]["usd"], found["host"]["hours_price_unknown"]) == ("2.8360", "1.50")


def test_hours_without_a_host_are_not_billed() -> None:
    [idle, host] = divide([HostHour({}, Resources(), 0.0, 1.0), HostHour({}, Resources(), 0.0, 0.0)])
    assert (idle.hours_unpriced, host.hours_unpriced) == (0, 0)


amounts = st.floats(0, 5e5, allow_nan=False)


@st.composite
def hosts(draw: Any) -> list[HostHour]:
    """Draw hours of a host whose CPU seconds are accounted as the host does."""
    hours = []
    for _ in range(draw(st.integers(1, 5))):
        cpus = draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
        used = {
            f"t{number}": CpuUsage(own, draw(st.floats(0, 2)) * own * 3600) for number, own in enumerate(cpus)
        }
        accounts = compute_accounts(used, 3600.0)
        uses = {
            name: TenantUse(
                draw(st.integers(0, 1)) * 3600,
                used[name].cpus * 3600,
                account.used,
                account.borrowed,
                account.lent,
                draw(st.floats(0, 48)),
            )
            for name, account in accounts.items()
        }
        priced = draw(st.sampled_from([0.0, 0.5, 1.0, 1.0]))
        capacity = draw(st.sampled_from([HOST, HOST, Resources()]))
        hours.append(HostHour(uses, capacity, priced * draw(st.floats(0, 100)), priced))
    return hours


@given(hosts())
def test_tenants_and_idle_parts_add_up_to_the_hosts_bill(hours: list[HostHour]) -> None:
    found = rows(hours)
    [host] = [row for row in found if row["line"] == "host"]
    parts = [Decimal(row["usd"]) for row in found if row["line"] != "host" and row["usd"] != "unknown"]
    if host["usd"] == "unknown":
        assert not parts
        assert not any(hour.priced for hour in hours)
    else:
        assert sum(parts) == Decimal(host["usd"])
        assert abs(Decimal(host["usd"]) - Decimal(sum(hour.dollars for hour in hours))) < Decimal("0.0001")
    # Rounding of as many lines is the most by which a line is less than nothing.
    assert all(part >= Decimal("-0.0005") for part in parts)
    charged = sum(line.charged.cpu_seconds for line in divide(hours) if line.kind == "tenant")
    used = sum(tenant.cpu_used for hour in hours for tenant in hour.uses.values())
    assert charged >= used - 1e-3 * max(used, 1.0)
