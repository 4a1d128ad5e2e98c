"""The model: declared tenants, the host's resources, and each tenant's slice of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Final, Literal, TypeAlias

from contracts import limits
from contracts.limits import Length, Matches, Within
from userdata.agent.machine.errors import RefusedError

CpuMode = Literal["shared", "capped", "pinned"]
"""``shared``: a weight on CPUs shared with other tenants; idle ones are lent. ``capped``: the same, but never
more than its own number. ``pinned``: exclusive whole cores."""

MAX_TENANTS: Final = 16
"""Each tenant has a volume. Older Nitro types allow 28 attachments; on p4d its disks and network use 10."""

TenantName: TypeAlias = limits.Name

Uid: TypeAlias = Annotated[int, Within(2000, 59_999)]
"""Above the image's users (1000) and below the ids that systemd and container tools allocate (from 60001).

Source: systemd, "Users, Groups, UIDs and GIDs".
"""

UIDS_APART: Final = 2**15
"""Tenants whose ``uid`` differ by this have the same addresses: see ``host.container.subnet_of``."""

Cpus: TypeAlias = Annotated[int, Within(1, 240)]

MemoryGib: TypeAlias = Annotated[int, Within(1, 4096)]

MAX_GPUS: Final = 16

GpuCount: TypeAlias = Annotated[int, Within(0, MAX_GPUS)]

GpuId: TypeAlias = Annotated[int, Within(0, MAX_GPUS - 1)]

MigName: TypeAlias = Annotated[str, Matches(r"[1-7]g\.[0-9]{1,3}gb")]
"""A MIG profile (NVIDIA multi-instance GPU), such as ``1g.5gb``."""

HostPort: TypeAlias = Annotated[int, Within(1024, 32_767)]
"""Higher ports are ephemeral ports of the kernel (``ip_local_port_range``)."""

ContainerPort: TypeAlias = Annotated[int, Within(1, 65_535)]

AGENT_PORTS: Final = (25_888,)
"""Ports of the host: the CloudWatch agent listens there."""


def volume_job(host: str, tenant: str) -> str:
    """Return the job name of a tenant's volume, snapshots and lease."""
    return f"{host}-{tenant}"


class PlanRefusedError(RefusedError):
    """The tenants do not fit on the host; names the first that does not, its value and what is allowed."""


@dataclass(frozen=True)
class Tenant:
    """A tenant: its container, and the resources that it requests.

    ``gpus`` is a number of whole GPUs; ``gpu_ids`` selects them by id; ``mig`` requests a MIG instance
    instead. Sizes are GiB of 2^30 bytes.
    """

    name: TenantName
    uid: Uid
    cpus: Cpus
    memory_gib: MemoryGib
    image: limits.ContainerImage
    cpu_mode: CpuMode = "shared"
    gpus: GpuCount = 0
    gpu_ids: Annotated[tuple[GpuId, ...], Length(0, MAX_GPUS)] = ()
    mig: MigName | None = None
    host_port: HostPort | None = None
    """The published port, on the host's private address and on 127.0.0.1, to which Session Manager forwards.
    None together with ``container_port``: no port is published."""
    container_port: ContainerPort | None = None
    data_gib: limits.VolumeGib = 20
    """Size of the tenant's data volume, which outlives the host."""
    command: limits.Arguments = ()
    environment: limits.Environment = field(default_factory=dict)
    secret: limits.SecretName | None = None
    """Name of the Secrets Manager secret with more environment variables."""
    registry_secret: limits.SecretName | None = None
    """Name of the one with the user name and the password of the image's registry."""

    def __post_init__(self) -> None:
        """Check for contradicting or incomplete fields."""
        requested = [name for name in ("gpus", "gpu_ids", "mig") if getattr(self, name)]
        if len(requested) > 1:
            raise ValueError(f"{' and '.join(requested)} of {self.name!r} are both set; set one of them")
        if len(set(self.gpu_ids)) < len(self.gpu_ids):
            raise ValueError(f"GPUs of {self.name!r} are {list(self.gpu_ids)}; list each once")
        if (self.host_port is None) != (self.container_port is None):
            raise ValueError(
                f"hostPort and containerPort of {self.name!r} must both be set, or neither; they are "
                f"{self.host_port} and {self.container_port}"
            )
        if self.host_port in AGENT_PORTS:
            raise ValueError(f"hostPort {self.host_port} of {self.name!r} is the agent's; choose another")


@dataclass(frozen=True)
class NumaNode:
    """One NUMA node: its cores, each with its CPUs (hardware threads), and its GPUs."""

    cores: tuple[tuple[int, ...], ...]
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class MigProfile:
    """A MIG profile: ``size`` memory slices that begin at one of ``starts``."""

    name: str
    size: int
    starts: tuple[int, ...]


@dataclass(frozen=True)
class HostShape:
    """The host's resources. ``memory_gib`` is the kernel's MemTotal, rounded down.

    ``gpus`` are ids of whole GPUs in the driver's order; a GPU may belong to no NUMA node.
    """

    nodes: tuple[NumaNode, ...]
    memory_gib: int
    gpus: tuple[int, ...] = ()
    mig: tuple[MigProfile, ...] = ()

    @property
    def cpus(self) -> int:
        """The number of CPUs."""
        return sum(len(core) for node in self.nodes for core in node.cores)

    @property
    def threads(self) -> int:
        """The number of CPUs of a core."""
        return max((len(core) for node in self.nodes for core in node.cores), default=1)

    @property
    def reserved_cores(self) -> tuple[tuple[int, ...], ...]:
        """The cores reserved for the system: one per 24 cores, rounded up, from the first node."""
        cores = [core for node in self.nodes for core in node.cores]
        return tuple(cores[: -(-len(cores) // 24)])

    @property
    def tenants_memory_gib(self) -> int:
        """The memory but what is reserved for the system: 4 GiB plus 2 %, rounded up."""
        return self.memory_gib - 4 - -(-self.memory_gib // 50)


@dataclass(frozen=True)
class MigInstance:
    """A MIG instance on ``gpu``; its memory slices begin at ``start``."""

    gpu: int
    profile: str
    start: int


@dataclass(frozen=True)
class Slice:
    """A tenant's resources. ``cpus`` are exclusive if pinned, else those that no tenant has pinned.

    ``weight`` is ``cpu.weight`` of cgroup v2: contended CPUs are divided in proportion to the weights.
    ``cpu_limit`` is the number of CPUs whose time it may use at most, None without a limit.
    """

    cpus: tuple[int, ...]
    weight: int
    memory_bytes: int
    pinned: bool = False
    gpus: tuple[int, ...] = ()
    mig: MigInstance | None = None
    cpu_limit: Cpus | None = None

    @cached_property
    def cpuset(self) -> str:
        """The CPUs in the format of the kernel and Docker: ``0-3,48-51``."""
        runs: list[list[int]] = []
        for cpu in sorted(self.cpus):
            if runs and cpu == runs[-1][1] + 1:
                runs[-1][1] = cpu
            else:
                runs.append([cpu, cpu])
        return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


MEMORY_SLICES: Final = 8
"""Memory slices of a GPU, in which MIG profiles are measured; see ``mig``."""


@dataclass(frozen=True)
class HostPlan:
    """The slices by tenant name, in the order of the list, and the CPUs that no tenant has pinned."""

    slices: Mapping[str, Slice]
    shared_cpus: tuple[int, ...]
