"""A service with real workers: instance process, scripted market, run recorder."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from pulumi_on_moto.errors import LocalCloudError
from rehearsal.machines.real import broker, load_client, run_recorder, service_host
from rehearsal.machines.real.commands import kill_all
from rehearsal.services.hosts import record_runs
from rehearsal.services.world import HOURS, rotate_closures
from spot_work import Request
from tests.waiting import TIMEOUT_SECONDS, wait_until

ROOT = Path(__file__).resolve().parents[2]
WORKER = """
import os, pathlib, signal, time
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
            environment={},
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


def test_each_zone_closes_and_once_all_do() -> None:
    traces = rotate_closures(("z", "x", "y"), HOURS)
    assert [trace.name for trace in traces] == ["x", "y", "z"]
    by_minute = list(zip(*(trace.samples for trace in traces), strict=True))
    assert len(by_minute) == HOURS * 60
    assert {sum(minute) for minute in by_minute} == {0, 2, 3}
    assert sum(not any(minute) for minute in by_minute) == 6


@pytest.mark.parametrize("command", [(), ("python", "worker.py"), ("spot-work", "--help")])
def test_a_command_without_recordable_runs_is_rejected(command: tuple[str, ...]) -> None:
    with pytest.raises(LocalCloudError, match="spot-work MODULE:FUNCTION"):
        record_runs(command)


@pytest.mark.parametrize("options", [(), ("--requests",)])
def test_the_recorder_replaces_the_function(options: tuple[str, ...]) -> None:
    recorded = record_runs(("spot-work", "worker:read", *options, "--batch", "16"))
    assert (recorded.function, recorded.takes_requests) == ("worker:read", bool(options))
    recorder = "rehearsal.machines.real.run_recorder:run"
    assert recorded.command == ["spot-work", recorder, "--batch", "16", "--requests"]


def test_a_function_of_requests_gets_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(run_recorder.RECORD, str(tmp_path / "runs"))
    monkeypatch.setenv(run_recorder.TAKES_REQUESTS, "1")
    monkeypatch.setattr(run_recorder, "_function", lambda: list)
    request = Request("id", [1], deadline=7.0)
    assert run_recorder.run([request]) == [request]


def test_runs_are_counted_by_the_origin_of_their_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(run_recorder.RECORD, str(tmp_path / "runs"))
    for origin, count in (("AWS Spot", 2), ("office", 1)):
        monkeypatch.setenv(run_recorder.ORIGIN, origin)
        run_recorder.write_down([Request(f"{len(origin)}-{number}", 1) for number in range(count)])
    assert run_recorder.read(tmp_path / "runs").by_origin == {"AWS Spot": 2, "office": 1}


@pytest.mark.parametrize(("percent", "wait"), [(50, 2.0), (95, 4.0), (99, 4.0)])
def test_a_quantile_is_a_wait_that_was_measured(percent: int, wait: float) -> None:
    assert load_client.quantile([4.0, 1.0, 3.0, 2.0], percent) == wait
    assert load_client.quantile([], percent) == 0.0


def test_runs_are_counted_by_their_repeat_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(run_recorder.RECORD, str(tmp_path / "runs"))
    monkeypatch.setenv(run_recorder.FUNCTION, "operator:length_hint")
    once, marked, unmarked = (Request(name, [1]) for name in ("once", "marked", "unmarked"))
    assert run_recorder.run(once) == 1
    assert run_recorder.run([marked, unmarked]) == 2
    run_recorder.write_down(
        [Request("marked", 1, is_repeat=True), unmarked, Request("back", 1, is_repeat=True)]
    )
    assert run_recorder.read(tmp_path / "runs", tmp_path / "none") == run_recorder.Runs(1, 2, 1)


def test_there_are_no_requests_before_the_first_status(tmp_path: Path) -> None:
    assert load_client.read(tmp_path / "none") == load_client.LoadStatus()


def test_a_missing_broker_is_an_error_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "_SERVER", Path("/nowhere/rabbitmq-server"))
    with pytest.raises(LocalCloudError, match="apt-get install rabbitmq-server"):
        broker.installed()
