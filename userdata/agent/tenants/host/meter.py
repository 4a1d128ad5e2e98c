"""Usage metrics of each tenant, sent every minute: CPU seconds (used, lent, borrowed), memory, restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts import names
from userdata.agent.metrics import emf
from userdata.agent.tenants.host import usage
from userdata.agent.tenants.host.steps import DesiredTenant, TenantContainer

PERIOD_SECONDS: Final = 60.0
_CGROUPS: Final = Path("/sys/fs/cgroup")
_PROC: Final = Path("/proc")


@dataclass(frozen=True)
class Counters:
    """Counters of a container's cgroup: CPU ``seconds`` since its start, current ``memory`` in bytes."""

    seconds: float
    memory: int


def read(pid: int, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> Counters | None:
    """Return the counters of the cgroup (v2 or v1) of ``pid``; None if it has ended."""
    try:
        groups: dict[str, str] = {}
        for line in (proc / str(pid) / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            groups |= dict.fromkeys(controllers.split(","), path.lstrip("/"))
        if "cpuacct" in groups:
            cpu_seconds = int((cgroups / "cpuacct" / groups["cpuacct"] / "cpuacct.usage").read_text()) / 1e9
            memory = cgroups / "memory" / groups["memory"] / "memory.usage_in_bytes"
        else:
            directory = cgroups / groups[""]
            statistics = dict(line.split() for line in (directory / "cpu.stat").read_text().splitlines())
            cpu_seconds, memory = int(statistics["usage_usec"]) / 1e6, directory / "memory.current"
        return Counters(cpu_seconds, int(memory.read_text()))
    except (OSError, KeyError, ValueError):
        return None


class UsageMeter:
    """Reads counters every minute; ``send`` is called with a tenant and its metrics."""

    def __init__(
        self,
        send: Callable[[str, list[emf.Metric]], None],
        flush: Callable[[], object],
        read_one: Callable[[int], Counters | None] = read,
    ) -> None:
        self._send = send
        self._flush = flush
        self._read = read_one
        self._previous_seconds: dict[str, float] = {}
        self._last_at: float | None = None

    def tick(
        self,
        now: float,
        desired: Mapping[str, DesiredTenant],
        containers: Mapping[str, TenantContainer],
        restarts: Mapping[str, int],
    ) -> bool:
        """Send once a minute; return whether it did. ``restarts`` are those since the last send."""
        if self._last_at is not None and now - self._last_at < PERIOD_SECONDS:
            return False
        counters = {
            container.id: (container.tenant, self._read(container.pid))
            for container in containers.values()
            if container.is_running
        }
        if self._last_at is not None:
            self._report(now - self._last_at, desired, counters, restarts)
        self._previous_seconds = {id_: counter.seconds for id_, (_, counter) in counters.items() if counter}
        self._last_at = now
        return True

    def _report(
        self,
        interval: float,
        desired: Mapping[str, DesiredTenant],
        counters: Mapping[str, tuple[str, Counters | None]],
        restarts: Mapping[str, int],
    ) -> None:
        used, memory = {}, {}
        for id_, (name, counter) in counters.items():
            if counter is not None and name in desired:
                cpu_seconds = max(counter.seconds - self._previous_seconds.get(id_, 0.0), 0.0)
                tenant = desired[name].tenant
                used[name] = usage.CpuUsage(tenant.cpus, cpu_seconds, tenant.cpu_mode == "shared")
                memory[name] = counter.memory
        for name, account in usage.compute_accounts(used, interval).items():
            self._send(name, list(_metrics(account, memory[name], restarts.get(name, 0))))
        for name in sorted(desired.keys() - used.keys()):
            self._send(name, [_restarts(restarts.get(name, 0))])
        self._flush()


def _metrics(account: usage.CpuAccount, memory: int, restarts: int) -> Iterable[emf.Metric]:
    yield emf.Metric(names.METRIC_TENANT_CPU_SECONDS, "Seconds", (round(account.used, 2),))
    yield emf.Metric(names.METRIC_TENANT_CPU_BORROWED, "Seconds", (round(account.borrowed, 2),))
    yield emf.Metric(names.METRIC_TENANT_CPU_LENT, "Seconds", (round(account.lent, 2),))
    yield emf.Metric(names.METRIC_TENANT_MEMORY, "Megabytes", (round(memory / 1e6, 1),))
    yield _restarts(restarts)


def _restarts(count: int) -> emf.Metric:
    return emf.Metric(names.METRIC_TENANT_RESTARTS, "Count", (float(count),))
