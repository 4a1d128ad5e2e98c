"""What each tenant used, sent once a minute: CPU seconds, lent and borrowed ones, memory, restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts import names
from userdata.agent.metrics import emf
from userdata.agent.tenants.host import usage
from userdata.agent.tenants.host.steps import Found, WantedTenant

PERIOD: Final = 60.0
_CGROUPS: Final = Path("/sys/fs/cgroup")
_PROC: Final = Path("/proc")


@dataclass(frozen=True)
class Counters:
    """A container's control group: ``seconds`` of CPU since its start, ``memory`` in bytes now."""

    seconds: float
    memory: int


def read(pid: int, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> Counters | None:
    """Return the counters of the control group of ``pid``, version 2 or 1; None once it is gone."""
    try:
        groups: dict[str, str] = {}
        for line in (proc / str(pid) / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            groups |= dict.fromkeys(controllers.split(","), path.lstrip("/"))
        if "cpuacct" in groups:
            spent = int((cgroups / "cpuacct" / groups["cpuacct"] / "cpuacct.usage").read_text()) / 1e9
            memory = cgroups / "memory" / groups["memory"] / "memory.usage_in_bytes"
        else:
            place = cgroups / groups[""]
            told = dict(line.split() for line in (place / "cpu.stat").read_text().splitlines())
            spent, memory = int(told["usage_usec"]) / 1e6, place / "memory.current"
        return Counters(spent, int(memory.read_text()))
    except (OSError, KeyError, ValueError):
        return None


class Meter:
    """Reads counters at the end of each minute; ``send`` takes a tenant and its metrics."""

    def __init__(
        self,
        send: Callable[[str, list[emf.Metric]], None],
        flush: Callable[[], object],
        read_one: Callable[[int], Counters | None] = read,
    ) -> None:
        self._send = send
        self._flush = flush
        self._read = read_one
        self._before: dict[str, float] = {}
        self._at: float | None = None

    def tick(
        self,
        now: float,
        wanted: Mapping[str, WantedTenant],
        found: Mapping[str, Found],
        restarts: Mapping[str, int],
    ) -> bool:
        """Send if a minute is over; tell whether it did. ``restarts`` are those since the last time."""
        if self._at is not None and now - self._at < PERIOD:
            return False
        counters = {one.id: (one.tenant, self._read(one.pid)) for one in found.values() if one.is_running}
        if self._at is not None:
            self._report(now - self._at, wanted, counters, restarts)
        self._before = {id_: told.seconds for id_, (_, told) in counters.items() if told}
        self._at = now
        return True

    def _report(
        self,
        interval: float,
        wanted: Mapping[str, WantedTenant],
        counters: Mapping[str, tuple[str, Counters | None]],
        restarts: Mapping[str, int],
    ) -> None:
        used, memory = {}, {}
        for id_, (name, told) in counters.items():
            if told is not None and name in wanted:
                spent = max(told.seconds - self._before.get(id_, 0.0), 0.0)
                tenant = wanted[name].tenant
                used[name] = usage.Used(tenant.cpus, spent, tenant.cpu_mode == "shared")
                memory[name] = told.memory
        for name, account in usage.settle(used, interval).items():
            self._send(name, list(_metrics(account, memory[name], restarts.get(name, 0))))
        for name in sorted(wanted.keys() - used.keys()):
            self._send(name, [_restarts(restarts.get(name, 0))])
        self._flush()


def _metrics(account: usage.TenantUse, memory: int, restarts: int) -> Iterable[emf.Metric]:
    yield emf.Metric(names.METRIC_TENANT_CPU_SECONDS, "Seconds", (round(account.used, 2),))
    yield emf.Metric(names.METRIC_TENANT_CPU_BORROWED, "Seconds", (round(account.borrowed, 2),))
    yield emf.Metric(names.METRIC_TENANT_CPU_LENT, "Seconds", (round(account.lent, 2),))
    yield emf.Metric(names.METRIC_TENANT_MEMORY, "Megabytes", (round(memory / 1e6, 1),))
    yield _restarts(restarts)


def _restarts(count: int) -> emf.Metric:
    return emf.Metric(names.METRIC_TENANT_RESTARTS, "Count", (float(count),))
