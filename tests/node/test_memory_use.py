"""The memory of workers: real processes by procfs, containers by control groups as Docker lays them out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contracts.agent.names import WORKERS_DIR
from tests.waiting import wait_until
from userdata.agent.work.service.memory_use import MemoryReader, MemoryUse

MIB = 2**20
CONTAINER = "c" * 64
HOLDER = """
import subprocess, sys
block = b"x" * (int(sys.argv[1]) << 20)
if sys.argv[2:]:
    child = subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[1]], stdout=subprocess.PIPE)
    child.stdout.readline()
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def holding(mib: int, *, with_child: bool = False) -> Iterator[int]:
    """A session whose process, and a child if asked, has so much memory; yields its id."""
    argv = [sys.executable, "-c", HOLDER, str(mib), *([HOLDER] if with_child else [])]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid


@pytest.fixture
def workers(tmp_path: Path) -> Path:
    directory = tmp_path / "run" / WORKERS_DIR
    directory.mkdir(parents=True)
    return directory


def record(workers: Path, pid: int, slot: int = 0) -> None:
    (workers / f"{slot}.json").write_text(json.dumps({"slot": slot, "pid": pid}))


@pytest.mark.parametrize(("with_child", "expected"), [(False, 100), (True, 200)])
def test_a_process_has_the_memory_of_its_session(workers: Path, with_child: bool, expected: int) -> None:
    reader = MemoryReader(workers.parent, workers=2)
    total = int(Path("/proc/meminfo").read_text().split()[1]) // 1024
    with holding(100, with_child=with_child) as pid:
        record(workers, pid)
        use = reader.read(0)
    assert use is not None
    assert expected <= use.used < expected + 60
    assert use.limit == pytest.approx(total / 2, abs=1)
    wait_until(lambda: reader.read(0) is None)  # it and its child have ended
    assert reader.read(1) is None  # never started


@pytest.mark.parametrize("folder", [f"system.slice/docker-{CONTAINER}.scope", f"docker/{CONTAINER}"])
@pytest.mark.parametrize(("limit", "allowed"), [("max", 4000), (str(1000 * MIB), 1000)])
def test_a_container_has_the_memory_of_its_control_group(
    workers: Path, tmp_path: Path, folder: str, limit: str, allowed: int
) -> None:
    proc, group = tmp_path / "proc", tmp_path / "cgroups" / folder
    proc.mkdir()
    group.mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal:       {16_000 * 1024} kB\nMemFree: 1 kB\n")
    (group / "memory.stat").write_text(f"anon {700 * MIB}\nfile {5000 * MIB}\nshmem {50 * MIB}\n")
    (group / "memory.max").write_text(f"{limit}\n")
    (workers / "0.cid").write_text(CONTAINER)
    reader = MemoryReader(workers.parent, 4, proc, tmp_path / "cgroups")
    assert reader.read(0) == MemoryUse(750, allowed)


@pytest.mark.parametrize("name", ["", "../../etc", CONTAINER])
def test_what_cannot_be_read_is_unknown(workers: Path, tmp_path: Path, name: str) -> None:
    (workers / "0.cid").write_text(name)
    record(workers, 1)
    assert MemoryReader(workers.parent, 1, cgroups=tmp_path).read(0) is None
