"""A rehearsed shared host: its list of tenants and their account at the end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

from market.replay.ledger import Ledger
from market.rules import TICK_SECONDS
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.cloud.views import GroupView
from rehearsal.machines import boot
from rehearsal.machines.group import Nodes
from rehearsal.machines.job_migrations import CAUSES, NOTHING, all_of
from rehearsal.machines.journal import Entry
from rehearsal.results.tenancy import Away, PlayedTenant, Return, TenancyAccount
from userdata.agent.tenants import codec
from userdata.agent.tenants.model import Tenant


def tenancy_account(
    cloud: LocalCloud, view: GroupView, nodes: Nodes, ledger: Ledger, hour_price: float | None
) -> TenancyAccount:
    """Return the account of the tenants; ``hour_price`` is that of a run."""
    tenants, entries = listed(cloud, view.name), nodes.journal.entries
    hours = ledger.cost * sum(span.ticks for span in ledger.since_warm_up()) * TICK_SECONDS / 3600
    cpu_price = None if hour_price is None else hour_price * hours / sum(tenant.cpus for tenant in tenants)
    moves, away = returns(entries), absences(entries, cloud.clock.now, moving=nodes.has_successor)

    def played(tenant: Tenant) -> PlayedTenant:
        gaps = [move.served - move.ended for move in moves if move.tenant == tenant.name]
        gaps += [absence.seconds for absence in away if absence.tenant == tenant.name]
        cpus, usd = tenant.cpus, None if cpu_price is None else cpu_price * tenant.cpus
        memory, data = tenant.memory_gib, tenant.data_gib
        return PlayedTenant(cpus, tenant.cpu_mode, memory, _gpus(tenant), data, sum(gaps, 0.0), usd)

    listed_now = {tenant.name: played(tenant) for tenant in tenants}
    return TenancyAccount(listed_now, moves, tuple(a for a in away if a.tenant in listed_now), hour_price)


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
    moves = []
    for tenant in {entry.tenant for entry in entries if entry.tenant}:
        ran = [entry for entry in entries if entry.tenant == tenant and entry.kind == "running"]
        stays = [[*stay] for _, stay in groupby(ran, key=lambda entry: entry.instance)]
        moves += [_return(entries, old[-1], new[0]) for old, new in pairwise(stays)]
    return tuple(sorted(moves, key=lambda move: (move.ended, move.tenant)))


def absences(entries: Sequence[Entry], observed_at: float, *, moving: bool) -> tuple[Away, ...]:
    """Return the tenants whose container had ended and did not run at ``observed_at``."""
    last = {entry.tenant: entry for entry in entries if entry.tenant}
    ended = sorted((name, entry.at) for name, entry in last.items() if entry.kind == "stopped")
    return tuple(Away(name, observed_at - at, moving) for name, at in ended)


def _return(entries: Sequence[Entry], old: Entry, new: Entry) -> Return:
    between = entries[entries.index(old) : entries.index(new)]
    zones = {entry.volume: entry.zone for entry in entries if entry.kind == "created"}
    stopped = all_of(between, "stopped", tenant=old.tenant, instance=old.instance)
    unmounts = all_of(between, "unmounted", volume=old.volume, instance=old.instance)
    mounts = all_of(between, "mounted", volume=new.volume, instance=new.instance)
    causes = [CAUSES[e.kind] for e in between if e.instance == old.instance and e.kind in CAUSES]
    return Return(
        old.tenant,
        # Without another entry the container ended without a notice.
        causes[0] if causes else "loss",
        zones[old.volume],
        zones[new.volume],
        stopped[-1].at,
        new.at,
        (unmounts[-1].contents if unmounts else None) or NOTHING,
        (mounts[-1].contents if mounts else None) or NOTHING,
    )
