"""Shared hosts: one instance each, divided between tenants."""

from __future__ import annotations

import dataclasses

import pulumi

from contracts.agent import config as agent
from infra.components.monitoring import dashboard, tenant_alarms
from infra.components.monitoring.monitoring import MonitoredGroup
from infra.components.tenants.tenancy import Tenancy, TenancyArgs
from infra.program import group_config
from infra.program.entries import needs as entry_needs
from infra.program.entries.group import EntryGroup, declare_capacity_group
from infra.program.entries.workload import Workload
from infra.program.foundation import Foundation
from infra.schema import Settings, SharedHost
from userdata.agent.aws.permissions import Need


def needs(settings: Settings) -> frozenset[Need]:
    """Return the needs of the instances of all shared hosts."""
    return frozenset().union(*map(_needs, settings.shared_hosts))


def declare(settings: Settings, foundation: Foundation) -> list[Workload]:
    """Declare the hosts and export what their tenants' users need for sessions."""
    scope = foundation.scope
    tenancies = {
        host.name: Tenancy(
            scope.name(host.name, "tenants"),
            TenancyArgs(scope, host, foundation.store, foundation.network.vpc_id),
            scope.child_options,
        )
        for host in settings.shared_hosts
    }
    if tenancies:
        scope.export("sharedHosts", {name: tenancy.access for name, tenancy in tenancies.items()})
    return [_workload(host, tenancies[host.name], foundation) for host in settings.shared_hosts]


def _needs(host: SharedHost) -> frozenset[Need]:
    return entry_needs.needs(host, host.images, {"tenants": True, "secret": bool(host.secrets)})


def _workload(host: SharedHost, tenancy: Tenancy, foundation: Foundation) -> Workload:
    """Declare a host. The controller sees one worker, which is ready when all tenants are served."""
    scope, state, store = foundation.scope, foundation.state, foundation.store
    access = dataclasses.replace(
        foundation.access(_needs(host)),
        job=host.name,
        tenants=tenancy.list_arn,
        secrets=host.secrets,
        repositories=entry_needs.repositories(host.images, scope),
    )
    group = EntryGroup(
        entry=host,
        access=access,
        work=pulumi.Output.all(bucket=store.bucket, job_table=state.jobs.name).apply(
            lambda outputs: {
                "shared_host": agent.SharedHost(**outputs, kms_key_arn=scope.kms_key_arn),
                "drain_seconds": host.drain_seconds,
            }
        ),
        config=group_config.build(
            host.capacity,
            slots=dict.fromkeys(host.capacity.types, 1),
            drain_seconds=host.drain_seconds,
            break_before_make=True,  # volumes and leases belong to one instance at a time
        ),
        follows_volume=True,
        security_groups=[tenancy.security_group_id],
        depends_on=[tenancy],
    )
    tenants = [tenant.name for tenant in host.tenants]
    monitored = MonitoredGroup(
        host.name,
        host.capacity,
        is_batch=True,
        rows=(dashboard.tenants_row(scope, host.name),),
        alarms=(*tenant_alarms.alarms(scope.stack, host.name, tenants),),
    )
    return Workload(declare_capacity_group(group, foundation), monitored)
