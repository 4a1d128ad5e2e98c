"""Whether idle CPUs are lent, and how soon they come back: by the tenants' control groups."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.real.tenants import THREE, SharedHost, until
from userdata.agent.tenants.host.meter import read

FAIR = 0.9
"""Of its part of the CPUs: what a tenant has again when it has them back."""
_CGROUPS = Path("/sys/fs/cgroup")
_TICKS = os.sysconf("SC_CLK_TCK")
_WINDOW = 0.25


@dataclass(frozen=True)
class Lent:
    """``fraction`` of the CPU time that nobody else used, and how many ``cpus`` that was; its own is one."""

    fraction: float
    cpus: float


class Lending:
    """The tenants of a host, busy and idle in turn, while nothing else on the machine disturbs them."""

    def __init__(self, host: SharedHost) -> None:
        self._homes = {name: host.place.volume_path(name) / "data" for name in host.pids()}
        self._pids = host.pids()

    def spent(self, name: str) -> float:
        found = read(self._pids[name])
        assert found is not None, f"{name} has ended"
        return found.seconds

    def wake(self, name: str) -> None:
        """Let a tenant want all CPUs that it can get; return when it runs."""
        before = self.spent(name)
        (self._homes[name] / "go").touch()
        until(lambda: self.spent(name) > before + 0.5, f"{name} is busy")

    def rest(self, name: str) -> None:
        (self._homes[name] / "go").unlink(missing_ok=True)

    def lent(self, busy: str, seconds: float) -> Lent:
        """Return what ``busy``, who wants all, was given of the CPUs while the other tenants idle."""
        with self.undisturbed():
            started_at, begin, idle = time.monotonic(), self.spent(busy), _idle()
            time.sleep(seconds)
            used = self.spent(busy) - begin
            return Lent(used / (used + _idle() - idle), used / (time.monotonic() - started_at))

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Let the tenants have all CPUs that they can use."""
        file, most = _weight_of_all(min(self._pids.values()))
        before = file.read_text()
        with _kernel_first():
            file.write_text(most)
            try:
                yield
            finally:
                file.write_text(before)

    def give_back_seconds(self, owner: str, borrower: str) -> float:
        """Wake ``owner``; return the seconds until it has had its part beside ``borrower`` for a while."""
        with self.undisturbed():
            return self._give_back_seconds(owner, borrower)

    def _give_back_seconds(self, owner: str, borrower: str) -> float:
        woken = time.monotonic()
        looks = [(woken, self.spent(owner), self.spent(borrower))]
        (self._homes[owner] / "go").touch()
        while looks[-1][0] < woken + 30:
            time.sleep(0.02)
            now, mine, other = time.monotonic(), self.spent(owner), self.spent(borrower)
            looks.append((now, mine, other))
            before = [look for look in looks if look[0] <= now - _WINDOW]
            if (
                before
                and mine - before[-1][1] >= FAIR / 2 * (mine - before[-1][1] + other - before[-1][2]) > 0
            ):
                return now - woken
        raise AssertionError(f"{owner} has not its part after 30 s")


@contextlib.contextmanager
def lending(host: SharedHost) -> Iterator[Lending]:
    """Watch the tenants of a host, without waiting for a CPU; nobody is busy afterwards."""
    made = Lending(host)
    _schedule(os.SCHED_RR | os.SCHED_RESET_ON_FORK, 1)
    try:
        yield made
    finally:
        for one in THREE:
            made.rest(one.name)
        _schedule(os.SCHED_OTHER, 0)


def _schedule(policy: int, priority: int) -> None:
    """Schedule all threads of this process, the landlord's too: on a host they run beside no other work."""
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))


@contextlib.contextmanager
def _kernel_first() -> Iterator[None]:
    """Prefer the kernel's threads to tenants of a great weight."""
    before = {pid: os.getpriority(os.PRIO_PROCESS, pid) for pid in _kernel_threads()}
    _set_priorities(dict.fromkeys(before, -20))
    try:
        yield
    finally:
        _set_priorities(before)


def _kernel_threads() -> list[int]:
    """Return the threads of ``kthreadd``, whose process id is 2."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            if path.read_text().rpartition(")")[2].split()[1] == "2":
                pids.append(int(path.parent.name))
    return pids


def _set_priorities(priorities: Mapping[int, int]) -> None:
    for pid, priority in priorities.items():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpriority(os.PRIO_PROCESS, pid, priority)


def _weight_of_all(pid: int) -> tuple[Path, str]:
    """Return the file with the weight of the group that all containers are in, and the most it takes."""
    lines = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    groups: Mapping[str, str] = {name: path[1:] for _, names, path in lines for name in names.split(",")}
    if "cpu" in groups:
        return (_CGROUPS / "cpu" / groups["cpu"]).parent / "cpu.shares", "262144"
    return (_CGROUPS / groups[""]).parent / "cpu.weight", "10000"


def _idle() -> float:
    """Return the seconds in which this machine's CPUs had nothing to do (proc(5), ``stat``)."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()
    return (int(fields[4]) + int(fields[5])) / _TICKS
