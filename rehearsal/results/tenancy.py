"""What became of a shared host's tenants: who had what, and when each served again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rehearsal.results.moves import Cause, Contents


@dataclass(frozen=True, slots=True)
class PlayedTenant:
    """What one tenant has by the list; ``gpus`` in words, sizes in GiB."""

    name: str
    cpus: int
    pinned: bool
    memory_gib: int
    gpus: str
    data_gib: int


@dataclass(frozen=True, slots=True)
class Return:
    """How a tenant came from one host to the next.

    Its container ``ended`` there and ``served`` again here (epoch seconds); ``before`` and ``after`` are the
    contents of its volume at the last unmounting and at the next mounting.
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
        """How long it did not serve."""
        return self.served - self.ended

    @property
    def intact(self) -> bool:
        """Whether what was mounted is what was unmounted."""
        return self.before == self.after


@dataclass(frozen=True, slots=True)
class Away:
    """A tenant that did not serve when the run ended, ``until`` then; its container ``ended`` before.

    ``moving``: a host for it was there or booting.
    """

    tenant: str
    ended: float
    observed_at: float
    moving: bool

    @property
    def seconds(self) -> float:
        """How long it had not served."""
        return self.observed_at - self.ended


@dataclass(frozen=True, slots=True)
class TenancyAccount:
    """All of it; ``hour_price`` is US dollars an hour of the machine on-demand, None where nobody knows."""

    tenants: Sequence[PlayedTenant]
    returns: Sequence[Return]
    away: Sequence[Away]
    hour_price: float | None
    machine_hours: float
    """What was paid for the machine, in hours of on-demand."""

    @property
    def intact(self) -> bool:
        """Whether every volume came over as it was."""
        return all(tenant_return.intact for tenant_return in self.returns)

    def outage(self, tenant: str) -> float:
        """Return for how many seconds a tenant did not serve after it once had, in all."""
        absences: list[Return | Away] = [*self.returns, *self.away]
        return sum((absence.seconds for absence in absences if absence.tenant == tenant), 0.0)

    def money(self) -> Mapping[str, float]:
        """Return each tenant's part of the bill (US dollars) by its CPUs; nothing where there is no price."""
        if self.hour_price is None:
            return {}
        paid = self.hour_price * self.machine_hours / sum(tenant.cpus for tenant in self.tenants)
        return {tenant.name: paid * tenant.cpus for tenant in self.tenants}


def to_json(tenancy: TenancyAccount) -> dict[str, Any]:
    """Return it as JSON values: US dollars, epoch seconds."""
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
