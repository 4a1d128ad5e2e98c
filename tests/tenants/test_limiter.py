"""Limits in control groups of both versions: files in the kernel's format."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.node.clocks import FakeClock
from tests.tenants.test_host import write
from userdata.agent.tenants.host.limiter import CpuLimiter, LendingTenant

ADA, BO, CY = LendingTenant(7, 1), LendingTenant(8, 1), LendingTenant(9, 1, can_borrow=False)
SPENT = {7: 0.0, 8: 0.0, 9: 0.0}
QUOTA = {1: "cpu/docker/{}/cpu.cfs_quota_us", 2: "docker/{}/cpu.max"}
LIMITED, FREE = {1: "100000", 2: "100000 100000"}, {1: "-1", 2: "max 100000"}


class Kernel:
    """A machine of two shared CPUs, and one that the system has."""

    def __init__(self, folder: Path, version: int) -> None:
        self.proc, self.cgroups, self.version = folder / "proc", folder / "cgroup", version
        self.spent, self.idle = dict(SPENT), 0.0
        for pid in SPENT:
            group = f"1:cpu:/docker/{pid}\n2:cpuacct:/docker/{pid}\n3:memory:/docker/{pid}\n"
            write(self.proc / f"{pid}/cgroup", group if version == 1 else f"0::/docker/{pid}\n")
            self.quota(pid, "150000")
        self.passes({}, 0.0)

    def quota(self, pid: int, text: str | None = None) -> str:
        path = self.quota_path(pid)
        if text is not None:
            write(path, text)
        return path.read_text()

    def quota_path(self, pid: int) -> Path:
        return self.cgroups / QUOTA[self.version].format(pid)

    def passes(self, used: dict[int, float], idle: float) -> None:
        """Let CPU seconds pass."""
        self.idle += idle
        ticks = round(self.idle * 100)
        lines = ["cpu  0 0 0 0 0 0", f"cpu0 0 0 0 {ticks} 0 0", "cpu1 0 0 0 0 0 0", "cpu2 0 0 0 9999999 0 0"]
        write(self.proc / "stat", "\n".join([*lines, "ctxt 1"]))
        for pid in SPENT:
            self.spent[pid] += used.get(pid, 0.0)
            self._count(pid, self.spent[pid])

    def _count(self, pid: int, seconds: float) -> None:
        if self.version == 1:
            write(self.cgroups / f"cpuacct/docker/{pid}/cpuacct.usage", str(int(seconds * 1e9)))
            write(self.cgroups / f"cpu/docker/{pid}/cpu.stat", "throttled_time 0")
            write(self.cgroups / f"memory/docker/{pid}/memory.usage_in_bytes", "1")
        else:
            write(
                self.cgroups / f"docker/{pid}/cpu.stat", f"usage_usec {int(seconds * 1e6)}\nthrottled_usec 0"
            )
            write(self.cgroups / f"docker/{pid}/memory.current", "1")


@pytest.mark.parametrize("version", [1, 2])
def test_a_tenant_that_takes_from_a_neighbour_is_limited_until_it_needs_no_more(
    tmp_path: Path, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    kernel, clock = Kernel(tmp_path, version), FakeClock()
    limiter = CpuLimiter(clock, kernel.proc, kernel.cgroups)
    limiter.watch({"ada": ADA, "bo": BO, "cy": CY}, (0, 1))

    def tick(used: dict[int, float], idle: float = 0.0) -> None:
        clock.advance(0.25)
        kernel.passes({pid: cpus / 4 for pid, cpus in used.items()}, idle / 4)
        limiter.tick()

    tick({})
    # A limit of a process before this one has ended; a cap of Docker's stays.
    assert [kernel.quota(pid) for pid in SPENT] == [FREE[version], FREE[version], "150000"]
    tick({7: 0.66, 8: 1.34})
    assert [kernel.quota(7), kernel.quota(8)] == [FREE[version], LIMITED[version]]
    assert "tenant limited" in caplog.text
    kernel.quota(8, FREE[version])  # by `docker update`
    tick({7: 1.0, 8: 1.0})
    assert kernel.quota(8) == LIMITED[version]
    os.utime(kernel.quota_path(8), (0, 0))
    tick({7: 1.0, 8: 1.0})
    assert kernel.quota_path(8).stat().st_mtime == 0  # a write would grant the quota once more
    tick({8: 1.0}, idle=1.0)
    assert kernel.quota(8) == FREE[version]
    assert kernel.quota(9) == "150000"


def test_a_container_that_has_ended_is_left_alone(tmp_path: Path) -> None:
    kernel, clock = Kernel(tmp_path, 2), FakeClock()
    limiter = CpuLimiter(clock, kernel.proc, kernel.cgroups)
    limiter.watch({"ada": ADA, "gone": LendingTenant(77, 1)}, (0, 1))
    limiter.tick()
    clock.advance(0.25)
    limiter.tick()
    assert kernel.quota(7) == FREE[2]


def test_without_the_kernels_files_nothing_is_watched(tmp_path: Path) -> None:
    CpuLimiter(FakeClock(), tmp_path, tmp_path).run()
