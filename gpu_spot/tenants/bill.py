"""Division of a shared host's bill between its tenants, hour by hour.

A tenant is charged for the GPUs and the memory reserved for it, for its CPUs less those it lent, and for
those it borrowed, while its container runs. The rest of the machine is idle. What an hour cost is divided in
proportion to the charges, so that tenants and idle parts together are the host's bill.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, Literal, TypeAlias

LineKind: TypeAlias = Literal["tenant", "idle", "host"]

_DOLLAR_DIGITS: Final = 4


@dataclass(frozen=True, slots=True)
class Resources:
    """GPU seconds, CPU seconds, and GiB hours of memory."""

    gpu_seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_gib_hours: float = 0.0

    @property
    def weight(self) -> float:
        """Their weight in the price of a machine: US dollars at the rates of ``RATES``."""
        return (
            self.gpu_seconds * RATES.gpu_seconds / 3600
            + self.cpu_seconds * RATES.cpu_seconds / 3600
            + self.memory_gib_hours * RATES.memory_gib_hours
        )


RATES: Final = Resources(gpu_seconds=0.95, cpu_seconds=0.031611, memory_gib_hours=0.004237)
"""US dollars of a GPU, a CPU and a GiB for an hour. Only their ratio matters: the price is the machine's.

AWS has no prices of a machine's parts. Source: OpenCost, ``configs/default.json`` ("GPU", "CPU", "RAM").
"""


@dataclass(frozen=True, slots=True)
class TenantUse:
    """What a tenant used: GPU and CPU seconds, and GiB hours of memory.

    ``gpu_seconds``, ``cpu_reserved`` and ``memory_gib_hours`` are reserved for it; ``cpu_borrowed`` and
    ``cpu_lent`` are as in `userdata.agent.tenants.usage.CpuAccount`.
    """

    gpu_seconds: float = 0.0
    cpu_reserved: float = 0.0
    cpu_used: float = 0.0
    cpu_borrowed: float = 0.0
    cpu_lent: float = 0.0
    memory_gib_hours: float = 0.0

    @property
    def charged(self) -> Resources:
        """What the tenant is charged for."""
        cpu_seconds = max(self.cpu_reserved - self.cpu_lent, 0.0) + self.cpu_borrowed
        return Resources(self.gpu_seconds, cpu_seconds, self.memory_gib_hours)


@dataclass(frozen=True, slots=True)
class HostHour:
    """One hour of a shared host.

    ``dollars`` is what the part ``priced`` (0 to 1) of the hour cost; the price of the rest is unknown.
    ``capacity`` is all that the host had.
    """

    uses: Mapping[str, TenantUse]
    capacity: Resources
    dollars: float
    priced: float

    @property
    def is_idle(self) -> bool:
        """Whether there was no host, as far as is known."""
        return not self.dollars and not self.capacity.weight and not self.uses


@dataclass(frozen=True, slots=True)
class BillLine:
    """A line of the bill; ``dollars`` is None if no hour of it has a known price.

    ``hours_unpriced`` are hours whose price is unknown: they are not in ``dollars``.
    """

    kind: LineKind
    name: str
    use: TenantUse
    charged: Resources
    hours_unpriced: float
    dollars: float | None


def divide(hours: Sequence[HostHour]) -> list[BillLine]:
    """Return a line for each tenant by name, one for the idle parts, and one for the host, the sum of them.

    An hour without a tenant is idle, such as the host's boot.
    """
    hours = [hour for hour in hours if not hour.is_idle]
    tenants = sorted({name for hour in hours for name in hour.uses})
    lines = [_tenant_line(name, hours) for name in tenants]
    capacity = _sum_resources(hour.capacity for hour in hours)
    unpriced = sum(1 - hour.priced for hour in hours)
    is_known = any(hour.priced for hour in hours)
    total = round(sum(hour.dollars for hour in hours), _DOLLAR_DIGITS)
    known_dollars = sum(line.dollars or 0.0 for line in lines)
    used = sum(line.use.cpu_used for line in lines)
    charged = _sum_resources(line.charged for line in lines)
    idle = Resources(
        capacity.gpu_seconds - charged.gpu_seconds,
        capacity.cpu_seconds - charged.cpu_seconds,
        capacity.memory_gib_hours - charged.memory_gib_hours,
    )
    idle_dollars = round(total - known_dollars, _DOLLAR_DIGITS) if is_known else None
    lines.append(BillLine("idle", "", TenantUse(), idle, unpriced, idle_dollars))
    dollars = total if is_known else None
    lines.append(BillLine("host", "", TenantUse(cpu_used=used), capacity, unpriced, dollars))
    return lines


def _tenant_line(name: str, hours: Sequence[HostHour]) -> BillLine:
    present = [hour for hour in hours if name in hour.uses]
    uses = [hour.uses[name] for hour in present]
    total = TenantUse(*(sum(getattr(use, part.name) for use in uses) for part in fields(TenantUse)))
    dollars = sum(hour.dollars * _share(hour, name) for hour in present)
    return BillLine(
        "tenant",
        name,
        total,
        _sum_resources(use.charged for use in uses),
        sum(1 - hour.priced for hour in present),
        round(dollars, _DOLLAR_DIGITS) if any(hour.priced for hour in present) else None,
    )


def _share(hour: HostHour, name: str) -> float:
    """Return a tenant's share of an hour; where the capacity is unknown, tenants pay the whole hour."""
    charged = sum(use.charged.weight for use in hour.uses.values())
    whole = max(hour.capacity.weight, charged)
    return hour.uses[name].charged.weight / whole if whole else 0.0


def _sum_resources(parts: Iterable[Resources]) -> Resources:
    collected = list(parts)
    return Resources(*(sum(getattr(entry, part.name) for entry in collected) for part in fields(Resources)))


HEADER: Final = (
    *("month", "host", "line", "tenant", "gpu_seconds", "cpu_seconds_used", "cpu_seconds_reserved"),
    *("cpu_seconds_borrowed", "cpu_seconds_lent", "cpu_seconds_charged", "memory_gib_hours"),
    *("hours_price_unknown", "usd"),
)
"""Columns of the CSV file. ``usd`` is ``unknown`` if no hour has a known price."""


def to_csv(month: str, lines_by_host: Mapping[str, Sequence[BillLine]]) -> str:
    """Return the bills of a month (``YYYY-MM``) as CSV; of idle parts and host only what is charged."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for host, lines in lines_by_host.items():
        writer.writerows(_row(month, host, line) for line in lines)
    return text.getvalue()


def _row(month: str, host: str, line: BillLine) -> list[str]:
    use, charged = line.use, line.charged
    of_tenants = [use.cpu_reserved, use.cpu_borrowed, use.cpu_lent] if line.kind == "tenant" else []
    reserved, borrowed, lent = [f"{value:.0f}" for value in of_tenants] or ["", "", ""]
    used = "" if line.kind == "idle" else f"{use.cpu_used:.0f}"
    return [
        *(month, host, line.kind, line.name, f"{charged.gpu_seconds:.0f}", used, reserved, borrowed, lent),
        *(f"{charged.cpu_seconds:.0f}", f"{charged.memory_gib_hours:.2f}", f"{line.hours_unpriced:.2f}"),
        "unknown" if line.dollars is None else f"{line.dollars:.{_DOLLAR_DIGITS}f}",
    ]
