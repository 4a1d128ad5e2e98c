"""Hostile input, signals at any moment, and crashes that repeat: each has an owner and an end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.agent.config import Service
from contracts.names import METRIC_HOST_FAULTS
from tests import models
from tests.node import configs
from tests.node.bench import Bench
from tests.node.configs import FakeClock
from tests.node.outside import Machine, World, announce
from tests.node.test_bulkheads import Outside
from userdata.agent import cli, tasks
from userdata.agent.aws.clients import AwsError
from userdata.agent.machine import files
from userdata.agent.machine.background import Guard, Lane, at_once, backoff
from userdata.agent.machine.errors import (
    AgentError,
    CommandError,
    LeaseHeldError,
    LeaseLostError,
    RefusedError,
    TransientError,
)
from userdata.agent.machine.host import SystemHost
from userdata.agent.storage.volume.fill import S3Filler
from userdata.agent.tasks import crashes, job, training
from userdata.agent.work import worker_report_file
from userdata.agent.work.service.slots import Slot, ready_file
from userdata.agent.work.service.workers import Workers
from userdata.agent.work.training.environment import CommandLine
from userdata.agent.work.worker_report_file import read_job, read_requests, report_path


def test_a_command_ends_at_its_time_limit_also_if_its_children_keep_the_pipe() -> None:
    started = time.monotonic()
    with pytest.raises(AgentError, match=r"sh: not ended after 1 s; killed"):
        SystemHost().run(["sh", "-c", "(trap '' TERM; sleep 60) & sleep 60"], 1)
    assert time.monotonic() - started < 30
    assert SystemHost().run(["cat"], 60, "x") == "x"


def test_output_and_arguments_may_be_anything() -> None:
    host = SystemHost()
    assert host.run(["printf", r"r\351f\000"], 60) == "r\ufffdf\0"
    with pytest.raises(AgentError, match="exit 1: r\ufffdf"):
        host.run(["sh", "-c", r"printf 'r\351f\n' >&2; exit 1"], 60)
    with pytest.raises(AgentError, match="embedded null byte"):
        host.run(["printf", "a\0b"], 60)


def left_behind(kind: str, path: Path) -> None:
    match kind:
        case "directory":
            path.mkdir()
            (path / "file").touch()
        case "deep":
            with contextlib.chdir(path.parent):
                for _ in range(3000):  # deeper than Python's recursion
                    path.mkdir()
                    os.chdir(path)
                    path = Path("d")
        case "pipe":
            os.mkfifo(path)
        case "link":
            (path.parent / "target").write_text('{"done": 1, "step": 1}')
            path.symlink_to(path.parent / "target")
        case "large":
            with path.open("wb") as file:
                file.truncate(2**40)
        case "bytes":
            path.write_bytes(b"\xff\xfe{}")
        case "nested":
            path.write_text("[" * 4000)


SERVICE = Service(command=("work",))
KINDS = ("directory", "deep", "pipe", "link", "large", "bytes", "nested")


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_worker_leaves_is_removed_and_is_no_report(kind: str, tmp_path: Path) -> None:
    worker_report_file.create_worker_directory(tmp_path, 0)
    left_behind(kind, report_path(tmp_path, 0))
    left_behind(kind, ready_file(Slot(0, 0), tmp_path))
    with pytest.raises((OSError, ValueError)):
        read_requests(report_path(tmp_path, 0))
    assert read_job(tmp_path) is None
    assert files.read_json(report_path(tmp_path, 0)) is None
    worker_report_file.create_worker_directory(tmp_path, 0)
    assert list(worker_report_file.worker_directory(tmp_path, 0).iterdir()) == []
    assert [path.name for path in (tmp_path / "ready").iterdir()] == ["0"]


def test_half_a_character_in_a_report_reaches_no_table(tmp_path: Path) -> None:
    worker_report_file.create_worker_directory(tmp_path, 0)
    report_path(tmp_path, 0).write_text(r'{"done": 1, "stopped": "a \ud800 b", "error": "\udfff"}')
    counts, report = read_requests(report_path(tmp_path, 0)), read_job(tmp_path)
    assert (counts.stopped, report.error) == ("a ? b", "?")


def test_a_link_in_the_place_of_a_temporary_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("kept")
    (tmp_path / f".file.{os.getpid()}").symlink_to(tmp_path / "other")
    files.write_atomic(tmp_path / "file", "new")
    assert ((tmp_path / "file").read_text(), (tmp_path / "other").read_text()) == ("new", "kept")


@pytest.fixture
def s3() -> Iterator[Any]:
    with models.moto():
        client = boto3.client("s3", "us-east-1")
        client.create_bucket(Bucket="bucket1")
        yield client


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (["images", "images/1.jpg"], r"Is a directory|Not a directory|File exists"),
        (["y" * 300], "File name too long"),
        (["a\0b"], "null"),
    ],
)
def test_a_dataset_that_no_volume_can_hold_is_refused(
    s3: Any, keys: list[str], reason: str, tmp_path: Path
) -> None:
    for key in keys:
        s3.put_object(Bucket="bucket1", Key=f"d/{key}", Body=b"1")
    for _ in range(2):
        with pytest.raises(RefusedError, match=f"({reason}).*; use objects"):
            S3Filler(s3, "s3://bucket1/d/", tmp_path).fill(lambda: None)


def test_a_dataset_larger_than_its_volume_is_refused_before_the_first_byte(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put_object(Bucket="bucket1", Key="d/a", Body=b"12345")
    size = os.statvfs(tmp_path)
    small = os.statvfs_result((1, 4, 1, 1, 1, *size[5:]))
    monkeypatch.setattr(os, "statvfs", lambda path: small)
    with pytest.raises(RefusedError, match=r"has 5 bytes, and its volume 4; set "):
        S3Filler(s3, "s3://bucket1/d/", tmp_path).fill(lambda: None)
    assert list(tmp_path.iterdir()) == []


def test_names_of_all_255_bytes_are_copied(s3: Any, tmp_path: Path) -> None:
    s3.put_object(Bucket="bucket1", Key="d/" + "x" * 255, Body=b"12345")
    S3Filler(s3, "s3://bucket1/d/", tmp_path).fill(lambda: None)
    assert (tmp_path / ("x" * 255)).read_bytes() == b"12345"


@pytest.mark.parametrize("signalled_at", range(1, 9))
def test_a_sigterm_between_any_two_starts_reaches_each_worker_once(signalled_at: int, tmp_path: Path) -> None:
    world = World("")
    machine, heartbeats = Machine(world), Outside(world, "", tmp_path).heartbeats

    def spawn(*_: Any) -> Any:
        process = machine.spawn()
        if len(machine.running) == signalled_at:
            workers.stop()
            workers.stop()
        return process

    slots = [Slot(number, 0) for number in range(8)]
    workers = Workers(SERVICE, slots, heartbeats, machine, world, tmp_path, spawn=spawn)
    while workers.tick() and world.seconds < 5:
        world.sleep(0.5)
    assert len(machine.running) == signalled_at
    assert [len(machine.times(signal.SIGTERM, pid)) for pid in machine.running] == [1] * signalled_at


def test_a_deadline_that_comes_after_the_sigterm_is_kept(tmp_path: Path) -> None:
    world = World("")
    machine, heartbeats = Machine(world), Outside(world, "", tmp_path).heartbeats
    workers = Workers(SERVICE, [Slot(0, 0)], heartbeats, machine, world, tmp_path, spawn=machine.spawn)
    world.at = [(5.0, workers.stop), (10.0, lambda: announce(world, tmp_path)), (15.0, workers.stop)]
    workers.run()  # without the notice: killed after 100 s
    assert len(machine.times(signal.SIGTERM, 1000)) == 1
    assert 55 <= machine.times(signal.SIGKILL, 1000)[0] <= 65


def test_a_job_that_is_stopped_while_its_container_is_prepared_does_not_start(bench: Bench) -> None:
    trainer = bench.trainer("touch started")

    def stop_twice(*_: Any) -> Any:
        trainer.stop()
        trainer.stop()
        return CommandLine(["true"], {})

    trainer._job_environment = SimpleNamespace(start=stop_twice)  # type: ignore[assignment]
    assert trainer.run() == "stopped"
    assert bench.processes == []


def test_a_guard_postpones_only_its_owner_and_never_the_end_of_a_lease(clock: FakeClock) -> None:
    guard, ran = Guard(clock), list[str]()

    def fail() -> None:
        ran.append("a")
        raise ValueError("a")

    for _ in range(20):
        assert guard.run("a", fail) is None
        assert guard.run("b", lambda: 1) == 1
        clock.advance(1)
    assert len(ran) == 4  # after 2, 4 and 8 seconds
    assert [backoff(failures) for failures in (1, 2, 9, 5000)] == [2.0, 4.0, 300.0, 300.0]
    with pytest.raises(LeaseLostError):
        guard.run("c", raises(LeaseLostError("lost")))


def test_a_lane_keeps_the_order_and_skips_what_fails(clock: FakeClock) -> None:
    lane, ran = Lane("it", at_once, clock, 60), list[int]()
    actions: list[Callable[[], None]] = [
        lambda: ran.append(1),
        raises(ValueError("v")),
        lambda: ran.append(3),
    ]
    for action in actions:
        lane.submit(action)
    assert ran == [1, 3]
    assert lane.is_idle


def raises(error: Exception) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


class Jobs:
    def __init__(self) -> None:
        self.faults = 0
        self.failed: list[str] = []

    def count_host_fault(self, checkpoint: float) -> int:
        self.faults += 1
        return self.faults


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the ends of commands have done: the job's table, the alarm's metric, replaced hosts."""
    ends = SimpleNamespace(jobs=Jobs(), metrics=[], replaced=[])
    monkeypatch.setattr(job, "jobs", lambda node: ends.jobs)
    monkeypatch.setattr(job, "fail", lambda node, jobs, reason: jobs.failed.append(reason))
    counter = type("Metrics", (), {"increment": lambda self, name: ends.metrics.append(name)})
    monkeypatch.setattr(job, "alarm_metrics", lambda node: counter())
    monkeypatch.setattr(training, "replace_host", ends.replaced.append)
    return ends


def test_equal_crashes_end_in_another_host_and_at_last_in_a_failed_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: SimpleNamespace
) -> None:
    monkeypatch.setattr(tasks, "run", lambda node: raises(TypeError("unforeseen"))())
    for host in range(1, 5):
        folder = tmp_path / str(host)
        folder.mkdir()
        config = folder / "config.json"
        config.write_text(json.dumps(configs.training()))
        arguments = ["--config", str(config), "--run-dir", str(folder), "run"]
        codes = [cli.main(arguments) for _ in range(crashes.MAX_EQUAL)]
        assert codes == [1, 1, 1, 1, 77]
        assert (len(ends.replaced), ends.metrics) == (host, [METRIC_HOST_FAULTS] * host)
    [reason] = ends.jobs.failed
    assert reason == "run crashed 5 times: TypeError in act: unforeseen"


FAULTS: list[Exception] = [
    TypeError("a"),
    OSError(28, "No space left on device"),
    AgentError("request 7f3a: denied"),
    TransientError("vol-1 is not attached"),
    CommandError("mount: exit 32", "wrong fs"),
    AwsError("job table: unreachable"),
    LeaseHeldError("another instance holds the lease"),
]
JOB = ("run", "volume")
COMMANDS = (*JOB, "work", "landlord", "proxy", "efs", "prepare", "metrics")


def fail(node: tasks.Node, command: str, fault: Exception) -> int:
    try:
        raise fault
    except Exception as error:
        return crashes.handle(node, command, error)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    command=st.sampled_from(COMMANDS),
    faults=st.lists(st.sampled_from(FAULTS), min_size=1, max_size=3),
    start_seconds=st.floats(100, 1800),
)
def test_whatever_fails_for_ever_ends_in_a_reason_and_is_its_own_alone(
    command: str,
    faults: list[Exception],
    start_seconds: float,
    tmp_path_factory: pytest.TempPathFactory,
    ends: SimpleNamespace,
) -> None:
    ends.jobs = Jobs()
    ends.metrics.clear()
    ends.replaced.clear()
    is_job, others = command in JOB, [name for name in COMMANDS if name != command]
    hosts = crashes.MAX_HOSTS + 1 if is_job else 1
    for _ in range(hosts):
        config = configs.load(configs.training() if is_job else configs.service())
        node = tasks.Node(config, tmp_path_factory.mktemp("host"), "http://nowhere")
        clock = node.clock = FakeClock()
        for other in others:
            assert fail(node, other, FAULTS[0]) == AgentError.exit_code
        code = start = 0
        while code != RefusedError.exit_code and clock.monotonic() < 1000 + 13 * 3600:
            clock.advance(start_seconds + 10)
            code, start = fail(node, command, faults[start % len(faults)]), start + 1
        rows = files.read_json(node.directory / "crashes.json") or {}
        assert [rows[other]["failures"] for other in others] == [1] * len(others)
        if is_job or command == "work":
            assert code == RefusedError.exit_code
        elif all(isinstance(fault, AgentError) for fault in faults):
            assert code == AgentError.exit_code  # tenants and proxies stay supervised
    assert len(ends.metrics) == hosts
    assert len(ends.replaced) == (hosts if is_job else 0)
    if not any(isinstance(fault, LeaseHeldError) for fault in faults):
        assert len(ends.jobs.failed) == is_job


def test_an_outage_of_an_hour_and_errors_now_and_then_are_tried_again(
    tmp_path: Path, ends: SimpleNamespace
) -> None:
    node = tasks.Node(configs.load(configs.training()), tmp_path, "http://nowhere")
    clock = node.clock = FakeClock()
    for _ in range(300):
        clock.advance(11)
        assert fail(node, "run", AwsError("job table: unreachable")) == AgentError.exit_code
    for _ in range(100):
        clock.advance(crashes.MAX_SECONDS + 1)
        assert fail(node, "run", AwsError("job table: unreachable")) == AgentError.exit_code
    assert ends.metrics == ends.replaced == []


def test_an_unforeseen_error_of_a_launch_counts_against_its_own_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_up: list[str] = []

    class Launch:
        def __init__(self, *_: object) -> None:
            pass

        def extend_if_due(self) -> None:
            raise TypeError("unforeseen")

        def give_up_if_due(self, error: AgentError) -> None:
            given_up.append(str(error))

    monkeypatch.setattr("userdata.agent.tasks.launch.Launch", Launch)
    hooks = {"autoScalingGroup": "g", "launch": "l", "terminate": "t", "terminateSeconds": 300}
    config = configs.load(configs.service(hooks=hooks, service={"image": "i@sha256:" + "0" * 64, "gpus": 1}))
    monkeypatch.setattr("userdata.agent.tasks.service._read_first_release", lambda node, service: service)
    with pytest.raises(AgentError, match="TypeError: unforeseen"):
        tasks.prepare(tasks.Node(config, tmp_path, "http://nowhere"))
    assert given_up == ["TypeError: unforeseen"]
