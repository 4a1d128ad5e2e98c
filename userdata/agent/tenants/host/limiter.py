"""Limits of tenants' CPU time while a neighbour lacks its CPUs, set in their control groups: `lending`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.tenants import lending
from userdata.agent.tenants.host import meter
from userdata.agent.tenants.host.container import PERIOD_MICROSECONDS
from userdata.agent.tenants.lending import CpuUse, LendingState

_TICKS_PER_SECOND: Final = 100.0
"""Of the times in ``/proc/stat``: ``USER_HZ``, the same on all architectures of EC2 (proc(5))."""


@dataclass(frozen=True)
class LendingTenant:
    """A running tenant on shared CPUs: the first process of its container, and its declared CPUs.

    One with a cap lends, but cannot borrow: its quota is Docker's.
    """

    pid: int
    cpus: int
    can_borrow: bool = True


class CpuLimiter:
    """Limits borrowers in a thread of its own: Docker, which the supervisor asks, may wait for a CPU.

    Docker does not know of these limits, and does not show them; ``docker update`` ends one until the next
    period. A limit that a process before this one left ends when its tenant is seen for the first time.
    """

    def __init__(
        self, clock: Clock, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")
    ) -> None:
        self._clock, self._proc, self._cgroups = clock, proc, cgroups
        self._watched: tuple[Mapping[str, LendingTenant], frozenset[int]] = ({}, frozenset())
        self._seconds: dict[LendingTenant, float] = {}
        self._idle_seconds, self._last_at = 0.0, 0.0
        self._state = LendingState()

    def watch(self, tenants: Mapping[str, LendingTenant], shared_cpus: Collection[int]) -> None:
        """Watch these tenants from now on, and these CPUs, which they share."""
        self._watched = dict(tenants), frozenset(shared_cpus)

    def run(self) -> None:
        """Decide every period, until the process ends; without the kernel's files return at once."""
        while True:
            try:
                self.tick()
            except OSError as error:  # weights alone then divide the CPUs
                log.warning("lent CPUs are not watched", error=str(error))
                return
            self._clock.sleep(lending.PERIOD_SECONDS)

    def tick(self) -> None:
        """Look at what tenants used since the last call, and set limits."""
        tenants, shared_cpus = self._watched
        now, idle_seconds = self._clock.monotonic(), self._read_idle_seconds(shared_cpus)
        interval = max(now - self._last_at, 1e-3)
        seconds, uses = {}, {}
        for name, tenant in tenants.items():
            counters = meter.read(tenant.pid, self._proc, self._cgroups)
            if counters is None:
                continue
            seconds[tenant] = counters.seconds
            if tenant in self._seconds:
                used = (counters.seconds - self._seconds[tenant]) / interval
                uses[name] = CpuUse(tenant.cpus, used, tenant.can_borrow)
            elif tenant.can_borrow:
                self._limit(tenant, None)
        idle = (idle_seconds - self._idle_seconds) / interval
        before, self._state = self._state, lending.next_state(self._state, uses, idle, now)
        self._seconds, self._idle_seconds, self._last_at = seconds, idle_seconds, now
        limits = self._state.limits
        for name in {*before.limits, *limits} & uses.keys():
            self._limit(tenants[name], limits.get(name))
            if name not in before.limits:
                lacking = sorted(self._state.lacking)
                log.warning(
                    "tenant limited: others lack CPUs", tenant=name, cpus=limits[name], lacking=lacking
                )

    def _limit(self, tenant: LendingTenant, cpus: float | None) -> None:
        quota = None if cpus is None else int(cpus * PERIOD_MICROSECONDS)
        try:
            groups = meter.control_groups(tenant.pid, self._proc)
            if "cpu" in groups:
                path = self._cgroups / "cpu" / groups["cpu"] / "cpu.cfs_quota_us"
                text = str(-1 if quota is None else quota)
            else:
                path = self._cgroups / groups[""] / "cpu.max"
                text = f"{'max' if quota is None else quota} {PERIOD_MICROSECONDS}"
            # To write a quota is to grant it again at once (kernel/sched/core.c, ``tg_set_cfs_bandwidth``).
            if path.read_text().strip() != text:
                path.write_text(text)
        except OSError as error:
            if tenant.pid and (self._proc / str(tenant.pid)).exists():
                log.warning("CPU time not limited", pid=tenant.pid, error=str(error))

    def _read_idle_seconds(self, cpus: Collection[int]) -> float:
        """Return the seconds in which CPUs had nothing to do, since boot; waiting for a disk counts."""
        names = {f"cpu{cpu}" for cpu in cpus}
        lines = map(str.split, (self._proc / "stat").read_text().splitlines())
        return (
            sum(int(fields[4]) + int(fields[5]) for fields in lines if fields[0] in names) / _TICKS_PER_SECOND
        )
