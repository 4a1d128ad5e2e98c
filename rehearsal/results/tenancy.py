"""The account of a shared host's tenants: resources and moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rehearsal.results.moves import Cause, Contents


@dataclass(frozen=True, slots=True)
class PlayedTenant:
    """Resources of a tenant by the tenant list; ``gpus`` as text, sizes in GiB."""

    name: str
    cpus: int
    pinned: bool
    memory_gib: int
    gpus: str
    data_gib: int


@dataclass(frozen=True, slots=True)
class Return:
    """A tenant's move from one host to the next.

    Its container ``ended`` on the old host and ``served`` again on the new one (epoch seconds); ``before``
    and ``after`` are the contents of its volume at the last unmount and the next mount.
    """

    tenant: str
    cause: Cause
    from_zone: str
    to_zone: str
    ended: float
    served: float
    before: Contents
    after: Contents

    @property
    def seconds(self) -> float:
        """Duration without a running container."""
        return self.served - self.ended

    @property
    def intact(self) -> bool:
        """Whether the mounted content equals the unmounted content."""
        return self.before == self.after


@dataclass(frozen=True, slots=True)
class Away:
    """A tenant without a running container at the end of the run (``observed_at``) since ``ended``.

    ``moving``: a host for it was running or booting.
    """

    tenant: str
    ended: float
    observed_at: float
    moving: bool

    @property
    def seconds(self) -> float:
        """Duration without a running container."""
        return self.observed_at - self.ended


@dataclass(frozen=True, slots=True)
class TenancyAccount:
    """The account; ``hour_price`` is the machine's On-Demand price (US dollars an hour), None if unknown."""

    tenants: Sequence[PlayedTenant]
    returns: Sequence[Return]
    away: Sequence[Away]
    hour_price: float | None
    machine_hours: float
    """Cost of the machine, in On-Demand hours."""

    @property
    def intact(self) -> bool:
        """Whether no volume's content changed."""
        return all(tenant_return.intact for tenant_return in self.returns)

    def outage(self, tenant: str) -> float:
        """Return the total seconds without a running container after the tenant's first start."""
        absences: list[Return | Away] = [*self.returns, *self.away]
        return sum((absence.seconds for absence in absences if absence.tenant == tenant), 0.0)

    def money(self) -> Mapping[str, float]:
        """Return each tenant's share of the cost (US dollars) by CPUs; empty without a price."""
        if self.hour_price is None:
            return {}
        paid = self.hour_price * self.machine_hours / sum(tenant.cpus for tenant in self.tenants)
        return {tenant.name: paid * tenant.cpus for tenant in self.tenants}


def to_json(tenancy: TenancyAccount) -> dict[str, Any]:
    """Return the account as JSON values: US dollars, epoch seconds."""
    money = tenancy.money()
    tenants = {
        tenant.name: {
            "cpus": tenant.cpus,
            "cpu_mode": "pinned" if tenant.pinned else "shared",
            "memory_gib": tenant.memory_gib,
            "gpus": tenant.gpus,
            "data_gib": tenant.data_gib,
            "seconds_without": tenancy.outage(tenant.name),
            **({"usd_by_declared": money[tenant.name]} if money else {}),
        }
        for tenant in tenancy.tenants
    }
    return {
        "tenants": tenants,
        "returns": [
            {
                "tenant": entry.tenant,
                "cause": entry.cause,
                "from": entry.from_zone,
                "to": entry.to_zone,
                "ended": entry.ended,
                "served": entry.served,
                "files": entry.after.files,
                "before": entry.before.digest,
                "after": entry.after.digest,
                "equal": entry.intact,
            }
            for entry in tenancy.returns
        ],
        "away": [
            {"tenant": entry.tenant, "ended": entry.ended, "seconds": entry.seconds, "moving": entry.moving}
            for entry in tenancy.away
        ],
        "intact": tenancy.intact,
    }
