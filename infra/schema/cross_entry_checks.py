"""Checks that involve several entries: unique names, references and AWS's limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from contracts.sentences import alternatives
from infra.catalogue import accelerators as catalogue
from infra.catalogue.network_interfaces import efa_interfaces
from infra.schema.base import check_unique
from infra.schema.jobs import matrix as matrices
from infra.schema.jobs.builder import builders
from infra.schema.jobs.training import ON_THE_VOLUME, Training
from infra.schema.network import Network
from infra.schema.operations import Storage
from infra.schema.services.http import Http
from infra.schema.services.service import Service
from infra.schema.shared_host import SharedHost
from infra.schema.work import Work

_REQUIREMENTS: Final = 4
"""Sets of instance requirements in one Auto Scaling group, and, by experience, in one Spot Fleet.

Source: Auto Scaling API reference, ``LaunchTemplateOverrides``.
"""

_LOAD_BALANCER_ZONES: Final = 2


def check_names_of_jobs(jobs: Sequence[Training], services: Iterable[Service]) -> None:
    """Raise ``ValueError`` for names that are not unique or may be those of experiments."""
    names = [service.name for service in services] + [job.name for job in jobs]
    check_unique(names, "services or training jobs")
    check_unique(names + [builder.group for builder in builders(jobs)], "groups (those of datasets included)")
    for job in jobs:
        has_parts = job.shares_group or job.has_nodes
        conflicts = [name for name in names if has_parts and name.startswith(f"{job.name}-")]
        if conflicts:
            parts = "nodes" if job.has_nodes else "experiments"
            raise ValueError(
                f"the name {conflicts[0]!r} begins like the {parts} of {job.name!r}; choose another name"
            )


def check_quota(jobs: Iterable[Training], quota_gpus: int) -> None:
    """Raise ``ValueError`` for a job on Kubernetes that needs more GPUs at once than all jobs may use.

    Kueue admits a job's pods together, so this one would wait for ever.
    """
    for job in jobs:
        if job.runs_on == "kubernetes":
            pods = job.nodes.max
            if job.matrix is not None:
                pods = job.capacity.target if job.shares_group else matrices.count(job.matrix)
            gpus = pods * min(catalogue.lookup(kind).accelerators for kind in job.capacity.types)
            if gpus > quota_gpus:
                raise ValueError(
                    f"quotaGpus must be at least {gpus}, which {job.name!r} needs at once, not {quota_gpus}"
                )


def check_brokers(services: Sequence[Service]) -> None:
    """Raise ``ValueError`` for a shared broker that the stack does not create, or has a queue twice."""
    owners = {
        service.name: {service.queue.queue_name(service.name): service.name}
        for service in services
        if service.queue is not None and service.queue.creates_broker
    }
    for service in services:
        if service.queue is None or service.queue.broker_of is None:
            continue
        owner, name = service.queue.broker_of, service.queue.queue_name(service.name)
        if owner not in owners:
            raise ValueError(
                f"queue.existing.brokerOf of {service.name!r} must be a service with a created broker "
                f"({', '.join(owners) or 'there is none'}), not {owner!r}"
            )
        if name in owners[owner]:
            raise ValueError(
                f"queue {name!r} of {service.name!r} is also that of {owners[owner][name]!r} on the "
                "same broker; use a queue for each service"
            )
        owners[owner][name] = service.name
    for queues in owners.values():
        _check_calls(services, set(queues.values()))


def _check_calls(services: Sequence[Service], on_broker: set[str]) -> None:
    """Raise ``ValueError`` if a service of a broker calls one that does not exist, or itself."""
    for service in services:
        if service.queue is None or service.name not in on_broker:
            continue
        allowed = sorted(on_broker - {service.name})
        if unknown := sorted(set(service.queue.called_services) - set(allowed)):
            raise ValueError(
                f"queue.calls of {service.name!r} must be other services on its broker "
                f"({', '.join(allowed) or 'there are none'}), not {unknown[0]!r}"
            )


def check_on_premises(services: Iterable[Service]) -> None:
    """Raise ``ValueError`` for a host of two services: its agent runs one."""
    hosts = [name for service in services for name in service.on_premises_slots]
    if repeated := next((name for name in hosts if hosts.count(name) > 1), None):
        raise ValueError(f"onPremises of two services has the host {repeated!r}; list it in one of them")


def check_names_of_hosts(
    hosts: Sequence[SharedHost], jobs: Sequence[Training], services: Iterable[Service]
) -> None:
    """Raise ``ValueError`` for names that are not unique or may be those of tenants' volumes."""
    groups = [service.name for service in services] + [job.name for job in jobs]
    names = groups + [builder.group for builder in builders(jobs)] + [host.name for host in hosts]
    check_unique(names, "services, training jobs or shared hosts")
    # The host's role may use volumes whose names have the host's name as their prefix.
    for host in hosts:
        if conflicts := [name for name in names if name.startswith(f"{host.name}-")]:
            raise ValueError(
                f"the name {conflicts[0]!r} begins like the tenants' volumes of {host.name!r}; choose "
                "another name"
            )


def check_blocks(training: Iterable[Training], network: Network | None) -> None:
    """Raise ``ValueError`` for a Capacity Block in a zone that is not one of the network's."""
    zones = network.zones if network is not None else ()
    for job in training:
        if job.capacity_block is not None and zones and job.capacity_block.zone not in zones:
            raise ValueError(
                f"capacityBlock of {job.name!r} must be in {alternatives(zones)} (network.zones), not "
                f"{job.capacity_block.zone!r}"
            )


def check_zones_of_nodes(training: Iterable[Training], network: Network | None) -> None:
    """Raise ``ValueError`` for nodes whose zone is not known: traffic between zones is slow and charged."""
    zones = network.zones if network is not None else ()
    for job in training:
        if not job.has_nodes or not zones or (job.nodes.zone is None and len(zones) == 1):
            continue
        if job.nodes.zone not in zones:
            raise ValueError(
                f"nodes.zone of {job.name!r} must be {alternatives(zones)} (network.zones), "
                f"{f'not {job.nodes.zone}' if job.nodes.zone else 'but is not set'}"
            )


def check_checkpoints(training: Iterable[Training], storage: Storage) -> None:
    """Raise ``ValueError`` for checkpoints on an access point that does not exist."""
    locations = [ON_THE_VOLUME, *access_points(storage)]
    for job in training:
        if job.checkpoints not in locations:
            raise ValueError(
                f"checkpoints of {job.name!r} must be {alternatives(map(repr, locations))}, not "
                f"{job.checkpoints!r}"
            )


def access_points(storage: Storage) -> list[str]:
    """Return the names of the file system's access points."""
    return [point.name for point in (storage.file_system.access_points if storage.file_system else ())]


def check_public_addresses(training: Iterable[Training], network: Network | None) -> None:
    """Raise ``ValueError`` for instances without a way out: AWS assigns them no public address.

    Source: EC2 API reference, ``InstanceNetworkInterfaceSpecification``, ``AssociatePublicIpAddress``: "You
    cannot specify more than one network interface in the request".
    """
    for job in training if network is not None and network.egress == "public" else ():
        if job.nodes.efa and len(efa_interfaces(job.capacity.types[0])) > 1:
            raise ValueError(
                f"nodes.efa of {job.name!r} needs network.egress 'nat-gateway', 'nat-gateway-per-zone' or "
                "'none', not 'public': an instance with several interfaces has no public address"
            )


def check_http(services: Sequence[Service], network: Network | None) -> None:
    """Raise ``ValueError`` for an address that the network has no place for, or a record that there is."""
    for service in services:
        if service.http is not None and network is not None:
            _check_place(service.name, service.http, network)
    addresses = [service.http for service in services if service.http is not None]
    records = [f"{http.domain} in {http.hosted_zone_id}" for http in addresses if http.hosted_zone_id]
    check_unique(records, "records of http.domain")


def _check_place(name: str, http: Http, network: Network) -> None:
    """Source: Application Load Balancer guide, "Availability Zones and subnets"."""
    subject = f"http of {name!r}"
    if len(network.zones) < _LOAD_BALANCER_ZONES:
        raise ValueError(f"{subject} needs two or more zones; add one to network.zones")
    if http.subnets and network.vpc_id is None:
        raise ValueError(f"{subject} has subnets, which need an existing VPC; set network.vpcId")
    if len(http.subnets) == 1:
        raise ValueError(f"{subject} has one subnet; list two or more, in two zones")
    if http.public and not http.subnets and (network.vpc_id is not None or network.egress == "none"):
        remedy = "list public subnets in http.subnets" if network.vpc_id is not None else "set network.egress"
        raise ValueError(f"{subject} is public, but the network has no public subnets; {remedy}")


def check_requirements(entries: Iterable[Work], network: Network | None) -> None:
    """Raise ``ValueError`` for more sets of requirements than AWS accepts; a fleet has one set per zone."""
    for entry in entries:
        capacity = entry.capacity
        if capacity.instance_requirements is None or network is None:
            continue
        images, zones = len(capacity.images), len(network.zones) if capacity.is_fleet else 1
        if images * zones > _REQUIREMENTS:
            counted = f"{images} image(s) in {zones} zone(s)" if zones > 1 else f"{images} images"
            raise ValueError(
                f"instanceRequirements of {entry.name!r} with {counted} are {images * zones} sets, "
                f"but AWS allows {_REQUIREMENTS}; list instanceTypes instead"
            )
