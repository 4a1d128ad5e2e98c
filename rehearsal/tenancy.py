"""A rehearsed shared host: its list of tenants and their account at the end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Final

from infra.catalogue import on_demand_prices
from market.replay.ledger import Ledger
from market.rules import TICK_SECONDS
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.cloud.views import GroupView
from rehearsal.machines import boot
from rehearsal.machines.group import Nodes
from rehearsal.machines.journal import Entry, Kind
from rehearsal.results.moves import Cause, Contents
from rehearsal.results.tenancy import Away, PlayedTenant, Return, TenancyAccount
from userdata.agent.tenants import codec
from userdata.agent.tenants.model import Tenant

_CAUSES: Final[dict[Kind, Cause]] = {"notice": "notice", "gone": "loss", "released": "hand-over"}
_NOTHING: Final = Contents(0, "")


def tenancy_account(cloud: LocalCloud, view: GroupView, nodes: Nodes, ledger: Ledger) -> TenancyAccount:
    """Return the account of the tenants.

    The machine's price is the lowest On-Demand price of its types, the unit of the ledger's hours.
    """
    tenants = listed(cloud, view.name)
    prices = [on_demand_prices.price(kind, cloud.clients.region) for kind in view.instance_types]
    known_prices = [price for price in prices if price is not None]
    absences = away(nodes.journal.entries, cloud.clock.now, moving=nodes.has_successor)
    minutes = sum(span.ticks for span in ledger.since_warm_up())
    return TenancyAccount(
        tenants=tuple(
            PlayedTenant(
                tenant.name,
                tenant.cpus,
                tenant.cpu_mode == "pinned",
                tenant.memory_gib,
                _gpus(tenant),
                tenant.data_gib,
            )
            for tenant in tenants
        ),
        returns=returns(nodes.journal.entries),
        away=tuple(absence for absence in absences if absence.tenant in {tenant.name for tenant in tenants}),
        hour_price=min(known_prices, default=None),
        machine_hours=ledger.cost * minutes * TICK_SECONDS / 3600,
    )


def listed(cloud: LocalCloud, group: str) -> tuple[Tenant, ...]:
    """Return a host's current tenant list from S3."""
    host = boot.parse(cloud.boot_data(group)).agent.shared_host
    assert host is not None
    body = cloud.clients("s3").get_object(Bucket=host.bucket, Key=codec.key_of(group))["Body"]
    return codec.decode(body.read().decode())


def _gpus(tenant: Tenant) -> str:
    if tenant.gpu_ids:
        return ", ".join(f"GPU {number}" for number in tenant.gpu_ids)
    return tenant.mig or (str(tenant.gpus) if tenant.gpus else "none")


def returns(entries: Sequence[Entry]) -> tuple[Return, ...]:
    """Return the tenants' moves between hosts, in order of time; restarts on one host do not count."""
    tenant_returns = []
    for tenant in sorted({entry.tenant for entry in entries if entry.tenant}):
        ran = [entry for entry in entries if entry.tenant == tenant and entry.kind == "running"]
        stays = [[*stay] for _, stay in groupby(ran, key=lambda entry: entry.instance)]
        tenant_returns += [_return(entries, old[-1], new[0]) for old, new in pairwise(stays)]
    return tuple(
        sorted(tenant_returns, key=lambda tenant_return: (tenant_return.ended, tenant_return.tenant))
    )


def away(entries: Sequence[Entry], observed_at: float, *, moving: bool) -> tuple[Away, ...]:
    """Return the tenants whose container had ended and did not run at ``observed_at``."""
    last = {entry.tenant: entry for entry in entries if entry.tenant}
    ended = sorted((name, last_entry.at) for name, last_entry in last.items() if last_entry.kind == "stopped")
    return tuple(Away(name, at, observed_at, moving) for name, at in ended)


def _return(entries: Sequence[Entry], old: Entry, new: Entry) -> Return:
    begin, end = entries.index(old), entries.index(new)
    between = entries[begin:end]
    zones = {entry.volume: entry.zone for entry in entries if entry.kind == "created"}
    stopped = [
        e for e in between if e.kind == "stopped" and (e.tenant, e.instance) == (old.tenant, old.instance)
    ]
    unmounts = [
        e for e in between if e.kind == "unmounted" and (e.volume, e.instance) == (old.volume, old.instance)
    ]
    mounts = [
        e for e in between if e.kind == "mounted" and (e.volume, e.instance) == (new.volume, new.instance)
    ]
    causes = [e.kind for e in between if e.instance == old.instance and e.kind in _CAUSES]
    return Return(
        old.tenant,
        # Without another entry the container ended without a notice.
        _CAUSES[causes[0]] if causes else "loss",
        zones[old.volume],
        zones[new.volume],
        stopped[-1].at,
        new.at,
        (unmounts[-1].contents if unmounts else None) or _NOTHING,
        (mounts[-1].contents if mounts else None) or _NOTHING,
    )
