"""The checks between entries: names, places and AWS's limits that no entry can judge alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from infra.schema.base import unique
from infra.schema.jobs.builder import builders
from infra.schema.jobs.training import ON_THE_VOLUME, Training
from infra.schema.network import Network
from infra.schema.operations import Storage
from infra.schema.services.service import Service
from infra.schema.shared_host import SharedHost
from infra.schema.work import Work

_REQUIREMENTS: Final = 4
"""Sets of instance requirements that AWS takes in one group (Auto Scaling's API reference,
``LaunchTemplateOverrides``), and, by experience, in one fleet."""


def check_names_of_jobs(jobs: Sequence[Training], services: Iterable[Service]) -> None:
    """Raise ``ValueError`` for names that are taken, or that could be an experiment's of a shared group."""
    names = [service.name for service in services] + [job.name for job in jobs]
    unique(names, "services or training jobs")
    unique(names + [one.group for one in builders(jobs)], "groups, of datasets too,")
    for job in jobs:
        taken = [name for name in names if job.shares_group and name.startswith(f"{job.name}-")]
        if taken:
            raise ValueError(
                f"{taken[0]!r} beside {job.name!r}, whose experiments' names begin so, allowed: other names"
            )


def check_names_of_hosts(
    hosts: Sequence[SharedHost], jobs: Sequence[Training], services: Iterable[Service]
) -> None:
    """Raise ``ValueError`` for names that are taken, or that could be a volume's of a tenant."""
    groups = [service.name for service in services] + [job.name for job in jobs]
    names = groups + [one.group for one in builders(jobs)] + [host.name for host in hosts]
    unique(names, "services, training jobs or shared hosts")
    # A host may touch volumes whose names begin with its own.
    for host in hosts:
        if taken := [name for name in names if name.startswith(f"{host.name}-")]:
            raise ValueError(
                f"{taken[0]!r} beside {host.name!r}, whose tenants' volumes begin so, allowed: other names"
            )


def check_blocks(training: Iterable[Training], network: Network | None) -> None:
    """Raise ``ValueError`` for a Capacity Block in a zone that the network does not have."""
    zones = network.zones if network is not None else ()
    for one in training:
        if one.capacity_block is not None and zones and one.capacity_block.zone not in zones:
            raise ValueError(
                f"capacityBlock of {one.name!r} is in {one.capacity_block.zone!r}, "
                f"allowed: {', '.join(zones)} (network.zones)"
            )


def check_checkpoints(training: Iterable[Training], storage: Storage) -> None:
    """Raise ``ValueError`` for checkpoints on an access point that is not there."""
    places = [ON_THE_VOLUME, *access_points(storage)]
    for one in training:
        if one.checkpoints not in places:
            raise ValueError(
                f"checkpoints of {one.name!r} are {one.checkpoints!r}, "
                f"allowed: {', '.join(map(repr, places))}"
            )


def access_points(storage: Storage) -> list[str]:
    """Return the names of the file system's access points."""
    return [point.name for point in (storage.file_system.access_points if storage.file_system else ())]


def check_requirements(entries: Iterable[Work], network: Network | None) -> None:
    """Raise ``ValueError`` for more sets of requirements than AWS takes; a fleet has them in each zone."""
    for entry in entries:
        capacity = entry.capacity
        if capacity.instance_requirements is None or network is None:
            continue
        images, zones = len(capacity.images), len(network.zones) if capacity.is_fleet else 1
        if images * zones > _REQUIREMENTS:
            counted = f"{images} image(s) in {zones} zone(s)" if zones > 1 else f"{images} images"
            raise ValueError(
                f"instanceRequirements of {entry.name!r} with {counted} make {images * zones} sets, "
                f"allowed: at most {_REQUIREMENTS} (AWS's limit); list instanceTypes instead"
            )
