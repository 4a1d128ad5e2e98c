"""The subcommand of a shared host, ``landlord``."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING, Final

from contracts import names
from contracts.agent.config import SharedHost, Volume
from userdata.agent.machine.errors import ConfigError, WorkCancelledError
from userdata.agent.tasks.node import Node, Stop
from userdata.agent.tasks.service import ecr_password

if TYPE_CHECKING:
    from userdata.agent.lease.store import DynamoLease
    from userdata.agent.storage.volume.execute import Executor
    from userdata.agent.tenants.host.container import TenantPaths
    from userdata.agent.tenants.host.meter import UsageMeter
    from userdata.agent.tenants.host.volumes import TenantVolumes
    from userdata.agent.tenants.throughput import Bandwidth

TENANTS_DIR: Final = "tenants"
"""Directory of the tenants' mount points, below the data directory."""
_LIST_FILE: Final = "tenants.json"
_WAIT_SECONDS: Final = 900.0


def shared_host(node: Node) -> int:
    """Supervise the tenants until the instance terminates or this process is stopped."""
    from userdata.agent.aws.clients import read_secret
    from userdata.agent.tenants.host.container import TenantPaths
    from userdata.agent.tenants.host.limiter import CpuLimiter
    from userdata.agent.tenants.host.listing import TenantListReader
    from userdata.agent.tenants.host.parts import GpuParts
    from userdata.agent.tenants.host.shape import disk_of
    from userdata.agent.tenants.host.shares import WeightCurve
    from userdata.agent.tenants.host.supervisor import TenantSupervisor
    from userdata.agent.tenants.host.tenant_state import SupervisorDependencies
    from userdata.agent.tenants.images import versions
    from userdata.agent.tenants.images.secret_values import TenantSecrets
    from userdata.agent.tenants.images.store import ImageStore

    host = node.config.shared_host
    if host is None:
        raise ConfigError("sharedHost is missing; this instance has none")
    stop = Stop()
    node.on_sigterm(stop)
    node.wait_outside_warm_pool(stop)
    if stop.is_requested:
        return 0
    region, group = node.config.region, node.config.group
    sys, proc = node.kernel / "sys", node.kernel / "proc"
    data, cdi = node.data / TENANTS_DIR, node.kernel / "var/run/cdi"
    paths = TenantPaths(node.metadata.private_address(), node.directory, data, cdi)
    listing = TenantListReader(node.clients.s3(region), host.bucket, group, node.directory / _LIST_FILE)
    secret_of = partial(read_secret, node.clients.secretsmanager(region))
    tenant_secrets = TenantSecrets(secret_of, partial(ecr_password, node), node.directory)
    limiter = CpuLimiter(node.clock, proc, sys / "fs/cgroup")
    means = SupervisorDependencies(
        host=node.host,
        clock=node.clock,
        run_in_background=node.run_in_background,
        heartbeats=node.heartbeat_sender(),
        volumes=_volumes(node, host, paths),
        meter=_meter(node),
        limiter=limiter,
        weight_curve=WeightCurve(sys / "fs/cgroup", proc),
        fetch_tenants=listing.fetch,
        cached_tenants=listing.cached,
        read_shape=node.shape,
        prepare_image=ImageStore(node.host, tenant_secrets, node.images, _free_bytes).prepare,
        secret_variables=tenant_secrets.variables,
        outdated=lambda: versions.outdated(node.host, has_gpus=bool(node.shape().gpus)),
        gpus=GpuParts(node.host, node.nvml),
        bandwidth=_bandwidth(node),
        disk_of=partial(disk_of, sys=sys, dev=node.kernel / "dev"),
        list_interval_seconds=host.list_interval_seconds,
    )
    supervisor = TenantSupervisor(means, paths)
    node.on_sigterm(supervisor.stop)
    if not stop.is_requested:
        node.run_in_background(limiter.run)
        supervisor.run()
    return 0


def _free_bytes(directory: str) -> int:
    return shutil.disk_usage(directory).free


def _bandwidth(node: Node) -> Bandwidth:
    """Return the machine's bandwidth by EC2; the least of any type if it cannot be read."""
    from userdata.agent.aws.clients import aws_errors
    from userdata.agent.machine import log
    from userdata.agent.machine.errors import AgentError
    from userdata.agent.tenants import throughput

    kind = node.identity.instance_type
    try:
        with aws_errors(f"instance type {kind}"):
            types = node.clients.ec2(node.config.region).describe_instance_types(InstanceTypes=[kind])
    except AgentError as error:
        log.warning("bandwidth unknown: tenants share the least of any type", error=str(error))
        return throughput.ASSUMED
    return throughput.parse_bandwidth(next(iter(types["InstanceTypes"]), {}))


def _meter(node: Node) -> UsageMeter:
    from userdata.agent.machine.background import BackgroundPoller
    from userdata.agent.metrics import emf
    from userdata.agent.tenants.host import meter

    config, instance = node.config, node.instance()
    sink = emf.Sink(config.metrics.emf_port)
    put = node.send or sink.put
    read = partial(meter.read, proc=node.kernel / "proc", cgroups=node.kernel / "sys/fs/cgroup")

    def send(tenant: str, metrics: list[emf.Metric]) -> None:
        dimensions = {"stack": config.stack, "group": config.group}
        dimensions |= {} if tenant == meter.HOST else {names.TENANT: tenant}
        more = {"instance": instance}
        put(emf.line(node.clock.wall(), config.metrics.log_group, instance, dimensions, metrics, more))

    flush = BackgroundPoller("metrics", sink.flush, node.run_in_background, node.clock, 60.0)
    return meter.UsageMeter(send, flush.poll, read)


def _volumes(node: Node, host: SharedHost, paths: TenantPaths) -> TenantVolumes:
    from userdata.agent.lease.store import DynamoLease
    from userdata.agent.storage import datasets
    from userdata.agent.storage.volume.ebs import AwsEbs
    from userdata.agent.storage.volume.execute import Executor, MountContext
    from userdata.agent.storage.volume.growth import VolumeShape
    from userdata.agent.tenants.host.volumes import NoDataset, TenantVolumes
    from userdata.agent.tenants.model import volume_job

    config, me = node.config, node.identity
    ec2, dynamodb = node.clients.ec2(config.region), node.clients.dynamodb(config.region)

    def leases(tenant: str) -> DynamoLease:
        job = volume_job(config.group, tenant)
        return DynamoLease(dynamodb, host.job_table, job, me.instance, node.clock)

    def check_termination() -> None:
        if node.is_terminating():
            raise WorkCancelledError("instance is terminating")

    def make(tenant: str, data_gib: int, devices: tuple[str, ...]) -> Executor:
        volume = Volume(size_gib=data_gib, kms_key_arn=host.kms_key_arn)
        job = volume_job(config.group, tenant)
        return Executor(
            MountContext(
                me.instance, me.zone, paths.volume_path(tenant), _WAIT_SECONDS, VolumeShape(data_gib), devices
            ),
            AwsEbs(ec2, config.stack, config.group, job, volume),
            leases(tenant),
            node.host,
            NoDataset(),
            node.clock,
            check_termination,
        )

    def list_attached() -> set[str]:
        return set(datasets.describe_attached(ec2, me.instance))

    return TenantVolumes(make, leases, list_attached, node.directory, node.clock)
