"""An instance of a service as a process: notices, its end, and the record of its runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.real import service_host
from tests.real.service_host import kill_all
from tests.waiting import TIMEOUT_SECONDS, wait_until

ROOT = Path(__file__).resolve().parents[2]
WORKER = """
import os, pathlib, signal, time
os.chdir(os.environ["PLACE"])  # a worker begins in its home
def end(*_):
    pathlib.Path("ended").write_text(os.environ["SPOT_WORK_URL"])
    raise SystemExit
signal.signal(signal.SIGTERM, end)
pathlib.Path(os.environ["GPU_SPOT_READY"]).touch()
pathlib.Path("pid").write_text(str(os.getpid()))
time.sleep(600)
"""


class Host:
    """An instance's process, with one worker that writes down how it ends."""

    def __init__(self, place: Path) -> None:
        self.place, self.directory = place, place / "run"
        self.directory.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-m", service_host.__name__],
            cwd=place,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        document = service_host.ServiceHostConfig(
            command=[sys.executable, "-c", WORKER],
            environment={"PLACE": str(place)},
            secrets={"SPOT_WORK_URL": "amqp://here"},
            slots=1,
            directory=str(self.directory),
        )
        self.send(asdict(document))

    def send(self, line: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{json.dumps(line)}\n")
        self.process.stdin.flush()

    def is_ready(self) -> bool:
        return (self.place / "pid").exists() and service_host.are_ready(
            self.directory, service_host.worker_slots(1)
        )


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    started = Host(tmp_path)
    try:
        wait_until(started.is_ready)
        yield started
    finally:
        if started.process.poll() is None:
            kill_all(started.process.pid)
        started.process.wait()
        assert started.process.stdin is not None
        started.process.stdin.close()


def test_a_notice_drains_the_workers_and_ends_the_instance(host: Host) -> None:
    host.send({"kind": "spot", "seconds": 60.0, "drain": 60.0})
    assert host.process.wait(TIMEOUT_SECONDS) == 0
    assert (host.place / "ended").read_text() == "amqp://here"
    document = json.loads((host.directory / "notice.json").read_text())
    assert document["kind"] == "spot"
    assert document["deadline"] - document["seen"] == pytest.approx(60.0)


def test_nothing_is_drained_before_its_time(host: Host) -> None:
    host.send({"kind": "spot", "seconds": 600.0, "drain": 1.0})
    wait_until((host.directory / "notice.json").exists)
    assert host.process.poll() is None
    assert not (host.place / "ended").exists()


def test_workers_drain_when_the_parent_process_ends(host: Host) -> None:
    assert host.process.stdin is not None
    host.process.stdin.close()
    assert host.process.wait(TIMEOUT_SECONDS) == 0
    assert (host.place / "ended").exists()


def test_whoever_is_taken_goes_with_all_its_workers(host: Host) -> None:
    wait_until(lambda: bool((host.place / "pid").read_text()))  # it is there before its text is
    worker = Path("/proc") / (host.place / "pid").read_text()
    kill_all(host.process.pid)
    host.process.wait()
    wait_until(lambda: not worker.exists() or "\nState:\tZ" in (worker / "status").read_text())
    assert not (host.place / "ended").exists()
