"""The Docker commands of a tenant's container: network, run and update."""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from contracts.agent.names import NOTICE_FILE, RUN_DIR, WORKERS_DIR
from userdata.agent.tenants import codec
from userdata.agent.tenants.host.steps import DesiredTenant
from userdata.agent.tenants.model import UIDS_APART, Slice, Tenant
from userdata.agent.tenants.throughput import TenantBounds
from userdata.agent.work.container import LIMITS, TMP, Container, shared_memory

LABEL_TENANT: Final = "gpu-spot.tenant"
LABEL_SLICE: Final = "gpu-spot.slice"
LABEL_SPEC: Final = "gpu-spot.spec"
"""Hash of everything that cannot change without a new container."""

BRIDGES: Final = "gst-"
"""Name prefix of the tenants' bridges; `firewall` matches it."""

SUBNETS: Final = ipaddress.ip_network("198.18.0.0/15")
"""Addresses of the tenants' bridges: reserved for benchmarks (RFC 6890), so that no VPC or peer routes them.
Docker's default pools are private networks (172.17.0.0/12, 192.168.0.0/16), as VPCs are."""

MAX_PIDS: Final = 4096
"""Maximum processes and threads of a tenant; stops fork bombs."""

_CDI_KIND: Final = "gpu-spot/tenant"
PERIOD_MICROSECONDS: Final = 100_000
"""Docker's and the kernel's period of a CPU quota."""
_LOG_MIB: Final = 20
_STOP_SECONDS: Final = 30


@dataclass(frozen=True)
class TenantPaths:
    """The host's private address; the directories of the agent, of the tenants' volumes and of CDI."""

    address: str
    run: Path
    data: Path
    cdi: Path

    def volume_path(self, tenant: str) -> Path:
        """Return the mount point of a tenant's volume."""
        return self.data / tenant

    def temporary_directory(self, tenant: str) -> Path:
        """Return the directory on a tenant's volume that it sees as ``/tmp``."""
        return self.volume_path(tenant) / "tmp"

    def image_volumes(self, tenant: str) -> Path:
        """Return the directory on a tenant's volume for its image's volumes, emptied at each start."""
        return self.volume_path(tenant) / "volumes"

    def image_volume(self, tenant: str, path: str) -> Path:
        """Return a tenant's directory for a declared volume; below ``/data`` or ``/log`` it stays."""
        # Not the tenant's own directory of that name, which could be a link to one of the host's.
        persists = path.startswith(("/data/", "/log/"))
        parent = self.volume_path(tenant) / "declared" if persists else self.image_volumes(tenant)
        return parent / path[1:].replace("/", "+")  # no declared path has a plus

    def cdi_file(self, tenant: str) -> Path:
        """Return the CDI specification of a tenant; see `cdi_specification`."""
        return self.cdi / f"{name_of(tenant)}.json"

    def notice_directory(self, tenant: str) -> Path:
        """Return the directory that a tenant sees as ``/run/gpu-spot``; it contains only the notice."""
        return self.run / "tenants" / tenant

    def environment_file(self, tenant: str) -> Path:
        """Return the file with a tenant's environment, which may contain secrets: readable by root only."""
        return self.run / WORKERS_DIR / f"{tenant}.env"

    def record_file(self, tenant: str) -> Path:
        """Return the slot record by which `metrics.owner` assigns GPU processes to the tenant."""
        return self.run / WORKERS_DIR / f"{tenant}.json"


def name_of(tenant: str) -> str:
    """Return the name of a tenant's container and network."""
    return f"gpu-spot-tenant-{tenant}"


def bridge_of(uid: int) -> str:
    """Return the name of a tenant's bridge; it uses the user id because the kernel allows 15 characters."""
    return f"{BRIDGES}{uid}"


def subnet_of(uid: int) -> str:
    """Return the network of a tenant's bridge: four addresses, of which the container has one.

    Tenants whose ``uid`` differ by a multiple of ``model.UIDS_APART`` would share it; ``plan`` refuses them.
    """
    start = int(SUBNETS.network_address) + 4 * (uid % UIDS_APART)
    return f"{ipaddress.ip_address(start)}/30"


def network_command(tenant: Tenant) -> list[str]:
    """Return the command that creates a tenant's bridge, which no other container uses."""
    bridge = f"com.docker.network.bridge.name={bridge_of(tenant.uid)}"
    label = f"{LABEL_TENANT}={tenant.name}"
    subnet = ["--subnet", subnet_of(tenant.uid)]
    return ["docker", "network", "create", *subnet, "--opt", bridge, "--label", label, name_of(tenant.name)]


def environment(tenant: Tenant, gpus: Sequence[str], secret_variables: Mapping[str, str]) -> dict[str, str]:
    """Return a container's environment; the agent's variables override the tenant's and the image's.

    ``NVIDIA_VISIBLE_DEVICES`` lists the UUIDs of the tenant's GPUs, ``void`` without any. It only informs:
    the container runs under runc, which does not read it, and CDI alone assigns GPUs. NVIDIA's runtime would
    add these GPUs, and no others.
    """
    ours = {
        "GPU_SPOT_TENANT": tenant.name,
        "GPU_SPOT_NOTICE": str(RUN_DIR / NOTICE_FILE),
        "NVIDIA_VISIBLE_DEVICES": _visible_devices(gpus),
    }
    return {"HOME": "/data", **tenant.environment, **secret_variables, **ours}


def cdi_specification(tenant: str, gpus: Sequence[str]) -> dict[str, Any]:
    """Return the specification of a CDI device that sets a tenant's ``NVIDIA_VISIBLE_DEVICES``.

    NVIDIA's specification sets it to ``void`` for each container with a GPU (NVIDIA Container Toolkit, pull
    request 395), and CDI's variables replace the container's. Of two devices the later one counts.
    """
    edits = {"env": [f"NVIDIA_VISIBLE_DEVICES={_visible_devices(gpus)}"]}
    return {"cdiVersion": "0.5.0", "kind": _CDI_KIND, "devices": [{"name": tenant, "containerEdits": edits}]}


def _visible_devices(gpus: Sequence[str]) -> str:
    return ",".join(gpus) or "void"


def spec_of(tenant: Tenant, part: Slice, gpus: Sequence[str], paths: TenantPaths) -> str:
    """Return the hash of everything that cannot change without a new container.

    ``gpus`` are names that do not change, see `parts.GpuParts.names`: the UUID of a MIG instance is new each
    time that the instance is created. A secret counts by its name: its values are those of the last start.
    """
    variables = environment(tenant, gpus, {})
    argv = _command(tenant, part.memory_bytes, gpus, paths)
    secret = [] if tenant.secret is None else [tenant.secret]
    text = json.dumps([argv, variables, tenant.image, tenant.command, *secret], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class TenantDisks:
    """Devices of the disks with a tenant's volume and with its image, such as ``/dev/nvme1n1``.

    Empty: not a disk, which has no bound.
    """

    volume: str
    image: str


def run_command(
    desired: DesiredTenant,
    gpus: Sequence[str],
    paths: TenantPaths,
    disks: TenantDisks,
    volumes: Sequence[str] = (),
) -> list[str]:
    """Return the command that starts a tenant's container, with the labels that identify it.

    `supervisor` restarts an ended container; Docker's restart policy would do so at boot, before the volume
    is mounted. ``gpus`` are UUIDs, which are CDI names, too; ``volumes`` those of
    `images.store.checked_volumes`.
    """
    tenant, part = desired.tenant, desired.part
    argv = _command(tenant, part.memory_bytes, gpus, paths)
    for path in volumes:
        argv += ["--volume", f"{paths.image_volume(tenant.name, path)}:{path}"]
    argv += _cpu_options(part, desired.shares)
    argv += _disk_options(desired.bounds, disks)
    for key, value in (
        (LABEL_TENANT, tenant.name),
        (LABEL_SLICE, codec.encode_slice(part)),
        (LABEL_SPEC, desired.spec),
    ):
        argv += ["--label", f"{key}={value}"]
    return [*argv, tenant.image, *tenant.command]


def cpu_quota(part: Slice) -> int:
    """Return the CPU quota of a slice in microseconds of each period; -1: none."""
    return -1 if part.cpu_limit is None else part.cpu_limit * PERIOD_MICROSECONDS


def _cpu_options(part: Slice, shares: int) -> list[str]:
    """Return the options that may change while a container runs.

    The quota is that of ``--cpus``, which `docker update` cannot remove.
    """
    options = ["--cpu-shares", str(shares), "--cpuset-cpus", part.cpuset]
    return [*options, "--cpu-quota", str(cpu_quota(part))]


def _disk_options(bounds: TenantBounds, disks: TenantDisks) -> list[str]:
    """Return the options that bound a container's disks: ``io.max`` of cgroup v2."""
    options = []
    if disks.volume:
        for kind in ("read", "write"):
            options += [f"--device-{kind}-bps", f"{disks.volume}:{bounds.volume}"]
    if disks.image and disks.image != disks.volume:
        options += ["--device-read-bps", f"{disks.image}:{bounds.image}"]
    return options


def container(tenant: Tenant, memory_bytes: int, gpus: Sequence[str], paths: TenantPaths) -> Container:
    """Return what a tenant's container gets; data loaders' batches in ``/dev/shm`` count as its memory."""
    home = paths.volume_path(tenant.name)
    return Container(
        network=name_of(tenant.name),
        gpus=tuple(gpus),
        shared_memory=shared_memory(None, memory_bytes),
        memory=memory_bytes,
        has_read_only_root=True,
        writable=(
            (home / "data", Path("/data")),
            (home / "log", Path("/log")),
            (paths.temporary_directory(tenant.name), TMP),
        ),
        read_only=((paths.notice_directory(tenant.name), RUN_DIR),),
        user=f"{tenant.uid}:{tenant.uid}",
        limits=LIMITS,
    )


def _command(tenant: Tenant, memory_bytes: int, gpus: Sequence[str], paths: TenantPaths) -> list[str]:
    limits = container(tenant, memory_bytes, gpus, paths)
    argv = limits.docker_run(name_of(tenant.name), paths.environment_file(tenant.name))
    if gpus:
        argv += ["--device", f"{_CDI_KIND}={tenant.name}"]
    argv += ["--detach", "--restart", "no", "--pull", "never", "--runtime", "runc"]
    # As much as its memory: no swap.
    argv += ["--memory-swap", str(memory_bytes), "--pids-limit", str(MAX_PIDS)]
    argv += ["--stop-timeout", str(_STOP_SECONDS)]
    # Rotated: a tenant's output cannot fill the host's disk.
    argv += ["--log-driver", "local", "--log-opt", f"max-size={_LOG_MIB}m", "--log-opt", "max-file=2"]
    if tenant.host_port is not None:
        # Session Manager forwards to the host's loopback address, which containers cannot reach.
        for address in (paths.address, "127.0.0.1"):
            argv += ["--publish", f"{address}:{tenant.host_port}:{tenant.container_port}/tcp"]
    return argv


def update_command(tenant: str, part: Slice, shares: int) -> list[str]:
    """Return the command that changes the CPUs of a running container."""
    return ["docker", "update", *_cpu_options(part, shares), name_of(tenant)]
