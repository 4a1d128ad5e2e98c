"""A tenant supervisor with Docker in memory, and volumes, heartbeats and GPUs without AWS."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from contracts.registry.tenant_wait import TenantWait
from tests.node.configs import FakeClock
from tests.tenants.docker_double import DockerDouble
from tests.tenants.hosts import host, tenant
from userdata.agent.machine.errors import AgentError
from userdata.agent.metrics import emf
from userdata.agent.tenants.host.container import TenantPaths
from userdata.agent.tenants.host.limiter import CpuLimiter, LendingTenant
from userdata.agent.tenants.host.meter import Counters, UsageMeter
from userdata.agent.tenants.host.parts import GpuParts
from userdata.agent.tenants.host.shares import WeightCurve
from userdata.agent.tenants.host.supervisor import TenantSupervisor
from userdata.agent.tenants.host.tenant_state import SupervisorDependencies
from userdata.agent.tenants.model import HostShape, Slice, Tenant
from userdata.agent.tenants.throughput import Bandwidth
from userdata.agent.work import notice
from userdata.agent.work.notice import Notice

ADA, BO, CY = tenant("ada"), tenant("bo", host_port=8002, container_port=80), tenant("cy", gpus=2)


class FakeVolumes:
    """Volumes that attach at once or fail; the leases of ``lost`` belong to another host."""

    def __init__(self, paths: TenantPaths) -> None:
        self.paths = paths
        self.sizes: dict[str, int] = {}
        self.fails: set[str] = set()
        self.growth_errors: dict[str, str] = {}
        self.lost: set[str] = set()
        self.released: list[str] = []

    def attach(self, tenant: str, data_gib: int) -> str:
        if tenant in self.fails:
            raise AgentError(f"volume of {tenant} cannot be attached")
        self.sizes[tenant] = data_gib
        return self.growth_errors.get(tenant, "")

    def release(self, tenant: str) -> None:
        self.sizes.pop(tenant, None)
        self.released.append(tenant)

    def tenants(self) -> frozenset[str]:
        return frozenset(self.sizes)

    def renew_leases(self) -> frozenset[str]:
        lost, self.lost = frozenset(self.lost), set()
        return lost


class GpuNames(GpuParts):
    """GPUs without a driver."""

    def names(self, part: Slice) -> tuple[str, ...]:
        return tuple(f"GPU-{gpu}" for gpu in part.gpus)

    def prepare(self, part: Slice, shape: HostShape) -> list[str]:
        return list(self.names(part))


class FakeHeartbeats:
    def __init__(self) -> None:
        self.states: list[str] = []
        self.waits: dict[str, str] | None = None

    def send(
        self,
        slots: Any,
        *,
        waiting: bool = False,
        draining: bool = False,
        tenant_waits: tuple[TenantWait, ...] | None = None,
        **_: Any,
    ) -> frozenset[int]:
        self.waits = None if tenant_waits is None else {one.tenant: one.reason for one in tenant_waits}
        self.states.append("waiting" if waiting else "draining" if draining else "ready")
        return frozenset()

    def deregister(self, slot: int) -> None:
        self.states.append("deregistered")

    def flush(self) -> None:
        """Everything is written at once."""


class Limiter(CpuLimiter):
    """Records what it is to watch."""

    def __init__(self, clock: FakeClock, watched: list[dict[str, LendingTenant]]) -> None:
        super().__init__(clock)
        self._received = watched

    def watch(self, tenants: Mapping[str, LendingTenant], shared_cpus: Collection[int]) -> None:
        assert shared_cpus or not tenants
        self._received.append(dict(tenants))


class Bench:
    def __init__(self, tmp: Path) -> None:
        self.docker, self.clock, self.heartbeats = DockerDouble(), FakeClock(), FakeHeartbeats()
        self.paths = TenantPaths("10.0.1.5", tmp / "run", tmp / "tenants", tmp / "cdi")
        self.volumes = FakeVolumes(self.paths)
        self.list: Callable[[], tuple[Tenant, ...] | None] = lambda: (ADA, BO, CY)
        self.later: list[Callable[[], None]] = []
        self.sent: list[tuple[str, dict[str, float]]] = []
        self.counters: Callable[[int], Counters | None] = lambda pid: Counters(0.0, 0)
        self.watched: list[dict[str, LendingTenant]] = []
        self.at_once = True
        self.image_volumes: tuple[str, ...] = ()
        self.secret_variables: Callable[[Tenant], dict[str, str]] = lambda tenant: {}
        self.outdated: tuple[str, ...] = ()

    def supervisor(self, before: tuple[Tenant, ...] | None = None) -> TenantSupervisor:
        def send(name: str, metrics: list[emf.Metric]) -> None:
            self.sent.append((name, {metric.name: metric.values[0] for metric in metrics}))

        dependencies = SupervisorDependencies(
            host=self.docker,
            clock=self.clock,
            run_in_background=self.run_in_background,
            heartbeats=self.heartbeats,
            volumes=self.volumes,
            meter=UsageMeter(send, lambda: None, lambda pid: self.counters(pid)),
            limiter=Limiter(self.clock, self.watched),
            weight_curve=WeightCurve(self.paths.run),
            fetch_tenants=lambda: self.list(),
            cached_tenants=lambda: before,
            read_shape=host,
            prepare_image=lambda tenant: self.image_volumes,
            secret_variables=lambda tenant: self.secret_variables(tenant),
            outdated=lambda: self.outdated,
            gpus=GpuNames(self.docker, None),
            bandwidth=Bandwidth(8_000_000_000, 4_000_000_000),
            disk_of=lambda path: f"/dev/disk-of-{path.name}",
            list_interval_seconds=5.0,
        )
        return TenantSupervisor(dependencies, self.paths)

    def run_in_background(self, work: Callable[[], None]) -> None:
        """Run queries at once, and what is done for a tenant later if the test says so."""
        name: str = work.__self__._name  # type: ignore[attr-defined]
        if self.at_once or not name.startswith("tenant ") or name == "tenant list":
            work()
        else:
            self.later.append(work)

    def pass_(self, supervisor: TenantSupervisor, seconds: int = 10) -> bool:
        continues = True
        for _ in range(seconds):
            continues = supervisor.tick()
            self.clock.advance(1.0)
        return continues

    def settled(self) -> TenantSupervisor:
        supervisor = self.supervisor()
        self.pass_(supervisor)
        assert sorted(self.docker.pids()) == ["ada", "bo", "cy"]
        return supervisor

    def announce(self, seconds: float, drain: float) -> None:
        now = self.clock.wall()
        notice.write(self.paths.run, Notice("spot", "terminate", "soon", now + seconds, now + drain, now))


def outage() -> tuple[Tenant, ...] | None:
    raise AgentError("s3: no answer")
