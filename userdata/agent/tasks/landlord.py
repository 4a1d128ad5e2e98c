"""The subcommand of a shared host: its parts put together on this machine."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from contracts import names
from contracts.agent.config import SharedHost, Volume
from userdata.agent.machine.errors import ConfigError, UnwantedError
from userdata.agent.tasks.node import Node, Stop
from userdata.agent.tasks.service import ecr_password

if TYPE_CHECKING:
    from userdata.agent.lease.store import DynamoLease
    from userdata.agent.storage.volume.execute import Executor
    from userdata.agent.tenants.host.container import HostPlace
    from userdata.agent.tenants.host.meter import Meter
    from userdata.agent.tenants.host.volumes import Volumes

TENANTS_DIR: Final = "tenants"
"""Below the data folder: where tenants' volumes are mounted."""
_LIST_FILE: Final = "tenants.json"
_WAIT_SECONDS: Final = 900.0


def landlord(node: Node) -> int:
    """Look after the tenants until the instance is taken or this process is told to stop."""
    from userdata.agent.tenants.host import parts
    from userdata.agent.tenants.host.container import HostPlace
    from userdata.agent.tenants.host.listing import Listing
    from userdata.agent.tenants.host.shares import Shares
    from userdata.agent.tenants.host.supervisor import Landlord, Means
    from userdata.agent.work import containers

    host = node.config.shared_host
    if host is None:
        raise ConfigError("sharedHost: missing; this instance has none")
    stop = Stop()
    node.on_sigterm(stop)
    node.gate(stop)
    if stop.told:
        return 0
    region, group = node.config.region, node.config.group
    sys, proc = node.kernel / "sys", node.kernel / "proc"
    place = HostPlace(node.metadata.private_address(), node.directory, node.data / TENANTS_DIR)
    listing = Listing(node.clients.s3(region), host.bucket, group, node.directory / _LIST_FILE)
    means = Means(
        host=node.host,
        clock=node.clock,
        aside=node.aside,
        heart=node.heart(),
        homes=_volumes(node, host, place),
        meter=_meter(node),
        shares=Shares(sys / "fs/cgroup", proc),
        fetch=listing.fetch,
        before=listing.before,
        shape=node.shape,
        pull=lambda image: containers.pull(node.host, image, partial(ecr_password, node)),
        devices=partial(parts.devices, node.host, node.nvml),
        list_every=host.list_every_seconds,
    )
    made = Landlord(means, place)
    node.on_sigterm(made.stop)
    if not stop.told:
        made.run()
    return 0


def _meter(node: Node) -> Meter:
    from userdata.agent.metrics import emf
    from userdata.agent.tenants.host import meter

    config, instance = node.config, node.instance()
    sink = emf.Sink(config.metrics.emf_port)
    put = node.send or sink.put
    read = partial(meter.read, proc=node.kernel / "proc", cgroups=node.kernel / "sys/fs/cgroup")

    def send(tenant: str, metrics: list[emf.Metric]) -> None:
        dimensions = {"stack": config.stack, "group": config.group, names.TENANT: tenant}
        more = {"instance": instance}
        put(emf.line(node.clock.wall(), config.metrics.log_group, instance, dimensions, metrics, more))

    return meter.Meter(send, sink.flush, read)


def _volumes(node: Node, host: SharedHost, place: HostPlace) -> Volumes:
    from userdata.agent.lease.store import DynamoLease
    from userdata.agent.storage import datasets
    from userdata.agent.storage.volume.ebs import AwsEbs
    from userdata.agent.storage.volume.execute import Executor, MountPlace
    from userdata.agent.storage.volume.growth import Shape
    from userdata.agent.tenants.host.volumes import Empty, Volumes
    from userdata.agent.tenants.model import volume_job

    config, me = node.config, node.identity
    ec2, dynamodb = node.clients.ec2(config.region), node.clients.dynamodb(config.region)

    def leases(tenant: str) -> DynamoLease:
        job = volume_job(config.group, tenant)
        return DynamoLease(dynamodb, host.job_table, job, me.instance, node.clock)

    def attend() -> None:
        if node.is_taken():
            raise UnwantedError("the instance is being taken")

    def make(tenant: str, data_gib: int, device: str) -> Executor:
        volume = Volume(size_gib=data_gib, kms_key_arn=host.kms_key_arn)
        job = volume_job(config.group, tenant)
        return Executor(
            MountPlace(me.instance, me.zone, place.home(tenant), _WAIT_SECONDS, Shape(data_gib), (device,)),
            AwsEbs(ec2, config.stack, config.group, job, volume),
            leases(tenant),
            node.host,
            Empty(),
            node.clock,
            attend,
        )

    def taken() -> set[str]:
        return set(datasets.attached(ec2, me.instance))

    return Volumes(make, leases, taken, node.directory, node.clock)
