"""A rehearsed shared host: its list of tenants and their account at the end."""

from __future__ import annotations

from typing import Final

from infra.catalogue import on_demand_prices
from market.replay.ledger import Ledger
from market.rules import TICK_SECONDS
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.cloud.views import GroupView
from rehearsal.machines import boot
from rehearsal.machines.group import Nodes
from rehearsal.machines.tenants import account
from rehearsal.results import tenancy
from rehearsal.results.tenancy import TenancyAccount
from userdata.agent.tenants import codec
from userdata.agent.tenants.model import Tenant

HOURS: Final = 10.0
"""Default simulated hours of a shared host: its moves are simulated by the second."""


def tenancy_account(cloud: LocalCloud, view: GroupView, nodes: Nodes, ledger: Ledger) -> TenancyAccount:
    """Return the account of the tenants.

    The machine's price is the lowest On-Demand price of its types, the unit of the ledger's hours.
    """
    tenants = listed(cloud, view.name)
    prices = [on_demand_prices.price(kind, cloud.clients.region) for kind in view.instance_types]
    known_prices = [price for price in prices if price is not None]
    away = account.away(nodes.journal.entries, cloud.clock.now, moving=nodes.has_successor)
    minutes = sum(span.ticks for span in ledger.since_warm_up())
    return TenancyAccount(
        tenants=tuple(
            tenancy.PlayedTenant(
                tenant.name,
                tenant.cpus,
                tenant.cpu_mode == "pinned",
                tenant.memory_gib,
                _gpus(tenant),
                tenant.data_gib,
            )
            for tenant in tenants
        ),
        returns=account.returns(nodes.journal.entries),
        away=tuple(absence for absence in away if absence.tenant in {tenant.name for tenant in tenants}),
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
