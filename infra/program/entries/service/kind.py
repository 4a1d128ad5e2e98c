"""Services: GPU workers that serve requests."""

from __future__ import annotations

import dataclasses

from infra.components.monitoring import dashboard
from infra.components.monitoring.monitoring import MonitoredGroup
from infra.iam.instance_statements import InstanceAccess
from infra.program import group_config
from infra.program.entries import needs as entry_needs
from infra.program.entries.group import EntryGroup, declare_capacity_group
from infra.program.entries.service import agent_config, http, on_premises
from infra.program.entries.service.http import DeclaredHttp
from infra.program.entries.workload import Workload
from infra.program.foundation import Foundation
from infra.schema import Service, Settings
from userdata.agent.aws.permissions import Need


def needs(settings: Settings) -> frozenset[Need]:
    """Return the needs of the instances of all services, their proxies included."""
    services = settings.on_instances.services
    proxies = http.NEEDS if any(service.http is not None for service in services) else frozenset()
    return proxies.union(*map(needs_of, services))


def declare(settings: Settings, foundation: Foundation) -> list[Workload]:
    """Declare the services on instances, and the identities of their workers on premises."""
    accesses = [(service, _access(service, foundation)) for service in settings.on_instances.services]
    on_premises.declare(accesses, foundation)
    addresses = {
        service.name: http.declare(service, service.http, foundation)
        for service, _ in accesses
        if service.http is not None
    }
    if addresses:
        foundation.scope.export("addresses", {name: declared.address for name, declared in addresses.items()})
    return [
        _workload(service, access, addresses.get(service.name), foundation) for service, access in accesses
    ]


def needs_of(service: Service) -> frozenset[Need]:
    """Return the needs of a service's instances."""
    kind_needs: dict[Need, bool] = {
        "work": True,
        "release": True,
        "pull": bool(service.image) and service.capacity.fallback.enabled,
        **entry_needs.work_needs(service),
    }
    if service.queue is not None:
        kind_needs[service.queue.need] = True
    return entry_needs.needs(service, _images(service), kind_needs)


def _images(service: Service) -> tuple[str, ...]:
    return (service.image,) if service.image else ()


def _access(service: Service, foundation: Foundation) -> InstanceAccess:
    queue = foundation.queues.get(service.name)
    return dataclasses.replace(
        entry_needs.work_access(service, foundation.access(needs_of(service))),
        queue=queue.access if queue else None,
        repositories=entry_needs.repositories(_images(service), foundation.scope),
    )


def _workload(
    service: Service, access: InstanceAccess, declared: DeclaredHttp | None, foundation: Foundation
) -> Workload:
    scales = service.scaling is not None
    group = EntryGroup(
        entry=service,
        access=access,
        work=agent_config.queue_of(service, foundation).apply(
            lambda queue: agent_config.work(service, queue)
        ),
        config=group_config.build(
            service.capacity,
            slots=service.slots,
            drain_seconds=service.drain_seconds,
            on_premises=service.workers_per_slot if service.on_premises is not None else 0,
            on_premises_hosts=service.on_premises_slots,
            http_concurrency=service.http.concurrency if service.http is not None else 0,
        ),
        is_scaled=service.scaling is not None and not service.scaling.dry_run,
        security_groups=(declared.workers_security_group_id,) if declared is not None else (),
    )
    row = dashboard.service_row(
        foundation.scope, service.name, has_queue=service.queue is not None, scales=scales
    )
    monitored = MonitoredGroup(
        service.name,
        service.capacity,
        rows=(row, *([declared.row] if declared is not None else [])),
        alarms=declared.alarms if declared is not None else (),
    )
    buckets = declared.bucket_arns if declared is not None else ()
    return Workload(declare_capacity_group(group, foundation), monitored, bucket_arns=buckets)
