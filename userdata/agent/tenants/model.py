"""Tenants as they are declared, the host as it is found or expected, and what of it each tenant gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, TypeAlias

from contracts import limits
from contracts.limits import Length, Matches, Within
from userdata.agent.machine.errors import RefusedError

CpuMode = Literal["shared", "pinned"]
"""``shared``: a weight on CPUs that others use, too, so that idle ones are lent. ``pinned``: whole cores that
nobody else runs on."""

MOST_TENANTS: Final = 16
"""Each has a volume. Older Nitro types take 28 attachments, of which p4d's own disks and network use 10."""

TenantName: TypeAlias = limits.Name

Uid: TypeAlias = Annotated[int, Within(2000, 59_999)]
"""Above the image's own users (1000) and below what systemd and container tools give out (systemd, "Users,
Groups, UIDs and GIDs": 60001 on)."""

Cpus: TypeAlias = Annotated[int, Within(1, 240)]

MemoryGib: TypeAlias = Annotated[int, Within(1, 4096)]

MOST_GPUS: Final = 16

GpuCount: TypeAlias = Annotated[int, Within(0, MOST_GPUS)]

GpuId: TypeAlias = Annotated[int, Within(0, MOST_GPUS - 1)]

MigName: TypeAlias = Annotated[str, Matches(r"[1-7]g\.[0-9]{1,3}gb")]
"""Of a profile of NVIDIA's multi-instance GPUs, such as ``1g.5gb``."""

HostPort: TypeAlias = Annotated[int, Within(1024, 32_767)]
"""Above are the kernel's own for outgoing connections (``ip_local_port_range``)."""

ContainerPort: TypeAlias = Annotated[int, Within(1, 65_535)]

AGENT_PORTS: Final = (25_888,)
"""Of the host's own: where the CloudWatch agent listens."""


def volume_job(host: str, tenant: str) -> str:
    """Return the job's name that a tenant's volume, its snapshots and its lease go by."""
    return f"{host}-{tenant}"


class PlanRefusedError(RefusedError):
    """The tenants do not fit the host: the first that does not, its value, and what is allowed."""


@dataclass(frozen=True)
class Tenant:
    """What one tenant runs, and what of the host is theirs.

    ``gpus`` is a number of whole ones; ``gpu_ids`` says which, and ``mig`` asks for a part of one instead.
    Sizes are GiB of 2^30 bytes.
    """

    name: TenantName
    uid: Uid
    cpus: Cpus
    memory_gib: MemoryGib
    image: limits.ContainerImage
    cpu_mode: CpuMode = "shared"
    gpus: GpuCount = 0
    gpu_ids: Annotated[tuple[GpuId, ...], Length(0, MOST_GPUS)] = ()
    mig: MigName | None = None
    host_port: HostPort | None = None
    """Where the host listens for it: on its private address, and on 127.0.0.1, which Session Manager forwards
    to. Left out with ``container_port``: nowhere."""
    container_port: ContainerPort | None = None
    data_gib: limits.VolumeGib = 20
    """Of the tenant's own volume, which outlives the host."""
    command: limits.Arguments = ()
    environment: limits.Environment = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check what one tenant says twice or by halves."""
        asked = [
            name for name in ("gpus", "gpu_ids", "mig") if getattr(self, name)
        ]  # a count, ids, or a profile
        if len(asked) > 1:
            raise ValueError(f"{' and '.join(asked)} of {self.name!r}, allowed: one of them")
        if len(set(self.gpu_ids)) < len(self.gpu_ids):
            raise ValueError(f"GPUs {list(self.gpu_ids)} of {self.name!r}, allowed: each once")
        if (self.host_port is None) != (self.container_port is None):
            raise ValueError(
                f"hostPort {self.host_port} and containerPort {self.container_port} of {self.name!r}, "
                "allowed: both or none"
            )
        if self.host_port in AGENT_PORTS:
            raise ValueError(f"hostPort {self.host_port} of {self.name!r} is the agent's, allowed: another")


@dataclass(frozen=True)
class NumaNode:
    """One NUMA node: its cores, each with the CPUs (hardware threads) of it, and the GPUs that hang on it."""

    cores: tuple[tuple[int, ...], ...]
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class MigProfile:
    """A way to cut a GPU: ``size`` of its memory slices, from one of ``starts`` on."""

    name: str
    size: int
    starts: tuple[int, ...]


@dataclass(frozen=True)
class HostShape:
    """What there is to deal out. ``memory_gib`` is what the kernel shows, rounded down.

    ``gpus`` are ids of whole GPUs in the driver's order; a GPU that no node names is near none.
    """

    nodes: tuple[NumaNode, ...]
    memory_gib: int
    gpus: tuple[int, ...] = ()
    mig: tuple[MigProfile, ...] = ()

    @property
    def cpus(self) -> int:
        """How many CPUs there are."""
        return sum(len(core) for node in self.nodes for core in node.cores)

    @property
    def threads(self) -> int:
        """How many CPUs a core has."""
        return max((len(core) for node in self.nodes for core in node.cores), default=1)

    @property
    def reserved_cores(self) -> tuple[tuple[int, ...], ...]:
        """The system's own, which no tenant runs on: one core in 24 (begun), the first node's first."""
        cores = [core for node in self.nodes for core in node.cores]
        return tuple(cores[: -(-len(cores) // 24)])

    @property
    def reserved_memory_gib(self) -> int:
        """The system's own: 4 GiB, and one in 50."""
        return 4 + -(-self.memory_gib // 50)


@dataclass(frozen=True)
class MigInstance:
    """A part of ``gpu``: ``profile``, whose memory slices begin at ``start``."""

    gpu: int
    profile: str
    start: int


@dataclass(frozen=True)
class Slice:
    """What one tenant gets. ``cpus`` are those it may run on: its own where pinned, else those of all shared.

    ``weight`` is cgroup v2's ``cpu.weight``: of CPUs that several want each gets its part of the sum.
    """

    cpus: tuple[int, ...]
    weight: int
    memory_bytes: int
    pinned: bool = False
    gpus: tuple[int, ...] = ()
    mig: MigInstance | None = None

    @property
    def cpuset(self) -> str:
        """The CPUs as the kernel and Docker write them: ``0-3,48-51``."""
        runs: list[list[int]] = []
        for cpu in sorted(self.cpus):
            if runs and cpu == runs[-1][1] + 1:
                runs[-1][1] = cpu
            else:
                runs.append([cpu, cpu])
        return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)

    @property
    def devices(self) -> tuple[str, ...]:
        """The CDI names of its whole GPUs. A part's name is known to the driver only, once it is cut."""
        return tuple(f"nvidia.com/gpu={gpu}" for gpu in self.gpus)


@dataclass(frozen=True)
class HostPlan:
    """Who gets what, by tenant's name in the list's order, and the CPUs that the shared tenants share."""

    slices: Mapping[str, Slice]
    shared_cpus: tuple[int, ...]
