"""Metrics of each tenant, sent every minute: what it used, what is reserved for it, restarts and waits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts import names
from userdata.agent.metrics import emf
from userdata.agent.tenants import usage
from userdata.agent.tenants.host.steps import DesiredTenant, TenantContainer
from userdata.agent.tenants.model import MEMORY_SLICES, HostShape, MigProfile, Slice

PERIOD_SECONDS: Final = 60.0
HOST: Final = ""
"""In place of a tenant's name: the whole host."""
_CGROUPS: Final = Path("/sys/fs/cgroup")
_PROC: Final = Path("/proc")


@dataclass(frozen=True)
class Counters:
    """Counters of a container's cgroup: CPU ``seconds`` since its start, current ``memory`` in bytes.

    ``throttled`` are the seconds that a cap or limit delayed it, summed over CPUs.
    """

    seconds: float
    memory: int
    throttled: float = 0.0


def read(pid: int, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> Counters | None:
    """Return the counters of the cgroup (v2 or v1) of ``pid``; None if it has ended."""
    try:
        groups = control_groups(pid, proc)
        if "cpuacct" in groups:
            cpu_seconds = int((cgroups / "cpuacct" / groups["cpuacct"] / "cpuacct.usage").read_text()) / 1e9
            throttled = _cpu_statistics(cgroups / "cpu" / groups["cpu"])["throttled_time"] / 1e9
            memory = cgroups / "memory" / groups["memory"] / "memory.usage_in_bytes"
        else:
            directory = cgroups / groups[""]
            statistics = _cpu_statistics(directory)
            cpu_seconds, throttled = statistics["usage_usec"] / 1e6, statistics["throttled_usec"] / 1e6
            memory = directory / "memory.current"
        return Counters(cpu_seconds, int(memory.read_text()), throttled)
    except (OSError, KeyError, ValueError):
        return None


def control_groups(pid: int, proc: Path = _PROC) -> dict[str, str]:
    """Return the paths of a process's control groups by controller, that of v2 by an empty name.

    Raises:
        OSError: the process has ended.
    """
    groups: dict[str, str] = {}
    for line in (proc / str(pid) / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        groups |= dict.fromkeys(controllers.split(","), path.lstrip("/"))
    return groups


def _cpu_statistics(directory: Path) -> dict[str, int]:
    lines = (directory / "cpu.stat").read_text().splitlines()
    return {key: int(value) for key, value in (line.split() for line in lines)}


class UsageMeter:
    """Reads counters every minute; ``send`` is called with a tenant, or ``HOST``, and its metrics."""

    def __init__(
        self,
        send: Callable[[str, list[emf.Metric]], None],
        flush: Callable[[], object],
        read_one: Callable[[int], Counters | None] = read,
    ) -> None:
        self._send = send
        self._flush = flush
        self._read = read_one
        self._previous: dict[str, Counters] = {}
        self._last_at: float | None = None

    def tick(
        self,
        now: float,
        desired: Mapping[str, DesiredTenant],
        containers: Mapping[str, TenantContainer],
        restarts: Mapping[str, int],
        waiting: Collection[str],
        shape: HostShape,
    ) -> bool:
        """Send once a minute; return whether it did.

        ``restarts`` are those since the last send; ``waiting`` the tenants that do not run as listed;
        ``shape`` has the host's resources.
        """
        if self._last_at is not None and now - self._last_at < PERIOD_SECONDS:
            return False
        counters = {
            container.id: (container.tenant, self._read(container.pid))
            for container in containers.values()
            if container.is_running
        }
        if self._last_at is not None:
            interval = now - self._last_at
            self._report(interval, desired, counters, restarts, waiting, shape)
            self._send(HOST, [*_capacity(shape, interval), _restarts(max(restarts.values(), default=0))])
            self._flush()
        self._previous = {id_: counter for id_, (_, counter) in counters.items() if counter}
        self._last_at = now
        return True

    def _report(
        self,
        interval: float,
        desired: Mapping[str, DesiredTenant],
        counters: Mapping[str, tuple[str, Counters | None]],
        restarts: Mapping[str, int],
        waiting: Collection[str],
        shape: HostShape,
    ) -> None:
        used, further = {}, {}
        for id_, (name, counter) in counters.items():
            if counter is not None and name in desired:
                previous = self._previous.get(id_, Counters(0.0, 0))
                cpu_seconds = max(counter.seconds - previous.seconds, 0.0)
                cpus, mode = desired[name].tenant.cpus, desired[name].tenant.cpu_mode
                used[name] = usage.CpuUsage(cpus, cpu_seconds, mode != "pinned", mode == "shared")
                further[name] = [_memory(counter), *_reserved(desired[name], interval, shape.mig)]
                if mode == "capped" or counter.throttled > previous.throttled:
                    further[name].append(_throttled(counter, previous))
        accounts = usage.compute_accounts(used, interval)
        for name in sorted({*desired, *waiting}):
            account = accounts.get(name)
            metrics = [*_cpu_seconds(account), *further[name]] if account is not None else []
            self._send(name, [*metrics, _restarts(restarts.get(name, 0)), _waiting(name in waiting)])


def _cpu_seconds(account: usage.CpuAccount) -> Iterable[emf.Metric]:
    yield emf.Metric(names.METRIC_TENANT_CPU_SECONDS, "Seconds", (round(account.used, 2),))
    yield emf.Metric(names.METRIC_TENANT_CPU_BORROWED, "Seconds", (round(account.borrowed, 2),))
    yield emf.Metric(names.METRIC_TENANT_CPU_LENT, "Seconds", (round(account.lent, 2),))


def gpus_of(part: Slice, profiles: Iterable[MigProfile]) -> float:
    """Return the number of a slice's GPUs; a MIG instance is the part of a GPU whose memory it has.

    One of a profile that the host does not have counts as a GPU.
    """
    if part.mig is None:
        return float(len(part.gpus))
    sizes = {profile.name: profile.size for profile in profiles}
    return sizes.get(part.mig.profile, MEMORY_SLICES) / MEMORY_SLICES


def _reserved(
    desired: DesiredTenant, interval: float, profiles: Iterable[MigProfile]
) -> Iterable[emf.Metric]:
    tenant = desired.tenant
    gpu_seconds = gpus_of(desired.part, profiles) * interval
    yield emf.Metric(names.METRIC_TENANT_CPU_RESERVED, "Seconds", (round(tenant.cpus * interval, 2),))
    yield emf.Metric(names.METRIC_TENANT_GPU_RESERVED, "Seconds", (round(gpu_seconds, 2),))
    gib_hours = tenant.memory_gib * interval / 3600
    yield emf.Metric(names.METRIC_TENANT_MEMORY_RESERVED, "None", (round(gib_hours, 4),))


def _capacity(shape: HostShape, interval: float) -> Iterable[emf.Metric]:
    yield emf.Metric(names.METRIC_HOST_CPU, "Seconds", (round(shape.cpus * interval, 2),))
    yield emf.Metric(names.METRIC_HOST_GPU, "Seconds", (round(len(shape.gpus) * interval, 2),))
    yield emf.Metric(names.METRIC_HOST_MEMORY, "None", (round(shape.memory_gib * interval / 3600, 4),))


def _memory(counter: Counters) -> emf.Metric:
    return emf.Metric(names.METRIC_TENANT_MEMORY, "Megabytes", (round(counter.memory / 1e6, 1),))


def _throttled(counter: Counters, previous: Counters) -> emf.Metric:
    seconds = max(counter.throttled - previous.throttled, 0.0)
    return emf.Metric(names.METRIC_TENANT_CPU_THROTTLED, "Seconds", (round(seconds, 2),))


def _waiting(is_waiting: bool) -> emf.Metric:
    return emf.Metric(names.METRIC_TENANT_WAITING, "Count", (float(is_waiting),))


def _restarts(count: int) -> emf.Metric:
    return emf.Metric(names.METRIC_TENANT_RESTARTS, "Count", (float(count),))
