"""Each dependency outside the process in turn misbehaves: no loop waits, and no other owner notices."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from contracts import names
from contracts.agent.config import HttpProxy, HttpWorkers, Service, Training
from contracts.jobs.attempt import JobAttempt
from contracts.registry import item as registry_item
from tests.node import configs
from tests.node.bench import JobList
from tests.node.outside import BEGIN, CRASH, DEADLINE, FAULTS, STOP, Machine, World, announce, check
from tests.node.test_proxy import Table, statistics
from tests.soak import chosen
from tests.tenants import supervised
from userdata.agent.aws.registry import WorkerRegistry
from userdata.agent.lease.renewal import LeaseRenewer
from userdata.agent.machine.background import BackgroundPoller
from userdata.agent.machine.errors import AgentError
from userdata.agent.metrics.collect import Collector
from userdata.agent.metrics.gpus import GpuSample
from userdata.agent.metrics.owner import Owners
from userdata.agent.proxy.discovery import HttpHost
from userdata.agent.proxy.haproxy_config import Paths, rows
from userdata.agent.proxy.runtime import ServerState, Statistics, parse_statistics
from userdata.agent.proxy.supervisor import ProxySupervisor
from userdata.agent.tenants.host import docker
from userdata.agent.tenants.host.supervisor import TenantSupervisor
from userdata.agent.work.failures.inspection import Inspector
from userdata.agent.work.heartbeat import HeartbeatSender
from userdata.agent.work.service.slots import Slot
from userdata.agent.work.service.worker_reports import WorkerReports
from userdata.agent.work.service.workers import Workers
from userdata.agent.work.training.checkpoint_files import CheckpointFiles
from userdata.agent.work.training.record import Recorder
from userdata.agent.work.training.train import Trainer, TrainingPaths

WORKERS = ("DynamoDB writes", "DynamoDB removals", "metadata", "Docker", "secrets", "release", "GPUs")
TRAINER = ("DynamoDB writes", "metadata", "lease", "GPUs", "checkpoints", "attempt record", "snapshots")
TENANTS = ("containers", "tenant list", "leases", "driver", "versions", "metrics")
METRICS = ("GPUs", "checkpoints", "file system", "worker reports", "CloudWatch agent")
PROXY = ("discovery", "state")
PROXY_SETTINGS = HttpProxy(HttpWorkers(8000), max_workers=1)
SILENCING = ("DynamoDB writes", "DynamoDB removals", "metadata")
"""Those without which no heartbeat is possible."""


def test_the_matrix_has_this_many_cells() -> None:
    assert len((*WORKERS, *TRAINER, *TENANTS, *METRICS, *PROXY)) * len(FAULTS) == 162


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(request.param)
    yield made
    made.close()


def cells(dependencies: tuple[str, ...]) -> Callable[[Any], Any]:
    both = [(dependency, fault) for dependency in dependencies for fault in FAULTS]
    half = [one for n, one in enumerate(both) if (n + n // len(FAULTS)) % 2 == 0]  # in each run
    return pytest.mark.parametrize(("dependency", "world"), chosen(both, *half), indirect=["world"])


class Outside:
    """The dependencies of one cell: one of them misbehaves."""

    def __init__(self, world: World, dependency: str, tmp: Path) -> None:
        self.world, self.dependency, self.received = world, dependency, list[tuple[float, int]]()
        client = SimpleNamespace(
            update_item=self.one("DynamoDB writes", self._record, {"Attributes": "\xff"}, None),
            delete_item=self.one("DynamoDB removals", lambda **_: {}, "\xff", None),
        )
        metadata = SimpleNamespace(lifecycle_state=self.one("metadata", lambda: "InService", 7, ""))
        registry = WorkerRegistry(client, "registry", "group#i-1", "i-1")  # type: ignore[arg-type]
        self.heartbeats = HeartbeatSender(registry, metadata, world, tmp, 10.0, world.in_background)  # type: ignore[arg-type]
        self.sample = self.one("GPUs", lambda: GpuSample(), object(), None)

    def one(self, name: str, answer: Callable[..., Any], garbage: Any, truncated: Any) -> Callable[..., Any]:
        return self.world.outside(answer, garbage, truncated) if name == self.dependency else answer

    def _record(self, **call: Any) -> dict[str, Any]:
        slot = next(slot for slot in range(3) if call["Key"] == registry_item.key("group#i-1", "i-1", slot))
        self.received.append((self.world.seconds, slot))
        return {}

    def check_heartbeats(self, slot: int) -> None:
        """Assert that a slot's heartbeats go on, also while another one's dependency fails."""
        if self.dependency in SILENCING:
            return
        times = [at for at, worker in self.received if worker == slot]
        assert max(later - sooner for sooner, later in pairwise([0.0, *times, STOP])) < 15


@cells(WORKERS)
def test_workers_are_reaped_drained_and_killed(world: World, dependency: str, tmp_path: Path) -> None:
    outside = Outside(world, dependency, tmp_path)
    machine = Machine(world, outside.one("Docker", lambda argv: "", "\xff\xfe", "0123"))
    gpus = BackgroundPoller("GPUs", outside.sample, world.in_background, world, 60)
    reports = WorkerReports({0: [0], 1: [0]}, gpus, world, tmp_path)
    service = Service(image="image")
    workers = Workers(
        service,
        [Slot(0, 0), Slot(1, 0)],
        outside.heartbeats,
        machine,
        world,
        tmp_path,
        spawn=machine.spawn,
        secrets=outside.one("secrets", lambda: {"A": "b"}, object(), None),
        release=outside.one("release", lambda: service, ValueError("no item"), None),
        worker_reports=reports,
        run_in_background=world.in_background,
    )

    def stop() -> None:
        announce(world, tmp_path)
        workers.stop()

    world.at = [(CRASH, lambda: machine.running.update({1000: 1})), (STOP, stop), (STOP + 1, workers.stop)]
    workers.run()
    check(world, machine, 1001)
    outside.check_heartbeats(1)
    assert dependency == "Docker" or 1002 in machine.running


@cells(TRAINER)
def test_a_training_is_stopped_and_killed(
    world: World, dependency: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, machine = Outside(world, dependency, tmp_path), Machine(world)
    monkeypatch.setattr(CheckpointFiles, "scan", outside.one("checkpoints", lambda self: 0, object(), None))
    write = outside.one("attempt record", lambda attempt: None, "\xff", 0)
    store = SimpleNamespace(read=lambda token: None, write=write)
    attempt = JobAttempt(1, configs.REVISION, "i-1", "g5.xlarge", "a", "spot", "primary", 0.0, 0.0, 0.0)
    recorder = Recorder(store, attempt, lambda: 0.0, world, tmp_path, world.in_background)  # type: ignore[arg-type]
    snapshots = outside.one("snapshots", lambda: None, object(), None)
    poller = BackgroundPoller("snapshots", lambda: [snapshots()], world.in_background, world, 60)
    trainer = Trainer(
        Training("j", "jobs", "repo", configs.REVISION, ("true",), "u", "p", stalled_after_minutes=60),
        TrainingPaths(tmp_path, tmp_path, tmp_path, tmp_path / "artifacts", tmp_path / "checkpoints"),
        JobList(),  # type: ignore[arg-type]
        outside.heartbeats,
        machine,
        world,
        LeaseRenewer(outside.one("lease", lambda: None, "\xff", 0), world, None, world.in_background),
        Inspector(
            SimpleNamespace(sample=outside.sample, expected=1, opens_again=lambda: True),  # type: ignore[arg-type]
            (tmp_path, None),
            {},
            lambda: False,
            world,
            run_in_background=world.in_background,
        ),
        lambda: None,
        lambda name: None,
        machine.spawn,
        on_poll=lambda: (recorder.poll(), poller.poll())[0],
        results=SimpleNamespace(offer=lambda changes: None, deliver=lambda *_: ""),  # type: ignore[arg-type]
        recorder=recorder,
        run_in_background=world.in_background,
    )

    def stop() -> None:
        announce(world, tmp_path)
        trainer.stop()

    world.at = [(STOP, stop), (STOP + 1, trainer.stop)]
    assert trainer.run() == "stopped"
    check(world, machine, 1000)
    outside.check_heartbeats(0)
    assert len(machine.running) == 1


@cells(TENANTS)
def test_tenants_are_drained(
    world: World, dependency: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = supervised.Bench(tmp_path)
    bench.clock, outside = world, Outside(world, dependency, tmp_path)
    bench.docker._clock = world  # type: ignore[attr-defined]
    listed = docker.list_containers
    monkeypatch.setattr(docker, "list_containers", outside.one("containers", listed, object(), {}))
    renew = bench.volumes.renew_leases
    bench.volumes.renew_leases = outside.one("leases", renew, object(), None)  # type: ignore[method-assign]

    def made(dependencies: Any, paths: Any) -> TenantSupervisor:
        flush = BackgroundPoller(
            "metrics", outside.one("metrics", lambda: True, object(), None), world.in_background, world, 60
        )
        dependencies.meter._flush = flush.poll
        changed = replace(
            dependencies,
            run_in_background=world.in_background,
            heartbeats=outside.heartbeats,
            fetch_tenants=outside.one("tenant list", dependencies.fetch_tenants, object(), ()),
            read_shape=outside.one("driver", dependencies.read_shape, object(), None),
            outdated=outside.one("versions", dependencies.outdated, object(), None),
        )
        return TenantSupervisor(changed, paths)

    monkeypatch.setattr(supervised, "TenantSupervisor", made)
    world.begin = 0.0 if dependency == "versions" else BEGIN  # asked only at first
    supervisor = bench.supervisor()
    fewer = (supervised.ADA, supervised.BO)  # a changed list is planned anew

    def started() -> list[str]:
        return [argv[argv.index("--name") + 1] for argv in bench.docker.ran if argv[:2] == ["docker", "run"]]

    def stop() -> None:
        is_wrong = (dependency, world.fault) == ("containers", "truncated")  # Docker says that there are none
        assert len(started()) == 3 or dependency == "versions" or is_wrong
        announce(world, bench.paths.run)

    world.at = [(CRASH, lambda: setattr(bench, "list", lambda: fewer)), (STOP, stop)]
    supervisor.run()
    assert world.blocking == 0
    assert world.longest < 1.0
    assert world.seconds <= STOP + DEADLINE
    assert not bench.docker.containers
    outside.check_heartbeats(0)


@cells(METRICS)
def test_other_metrics_go_on(world: World, dependency: str, tmp_path: Path) -> None:
    outside, lines = Outside(world, dependency, tmp_path), list[tuple[float, dict[str, Any]]]()
    waiting: list[str] = []

    def flush() -> bool:
        lines.extend((world.seconds, json.loads(text)) for text in waiting)
        waiting.clear()
        return True

    collector = Collector(
        configs.load(configs.training()),
        "i-1",
        SimpleNamespace(sample=outside.sample, expected=1, opens_again=lambda: True),  # type: ignore[arg-type]
        Owners(tmp_path),
        SimpleNamespace(put=waiting.append, flush=outside.one("CloudWatch agent", flush, object(), None)),  # type: ignore[arg-type]
        world,
        outside.one("checkpoints", lambda: 1.0, object(), None),
        outside.one("worker reports", lambda: (2.0,), object(), ()),
        outside.one("file system", lambda: 3.0, "\xff", None),
        world.in_background,
    )
    collector.run(lambda: world.seconds > 600)
    assert world.blocking == 0
    assert world.longest < 1.0
    if dependency == "CloudWatch agent":
        assert len(waiting) + len(lines) >= 9  # they wait for it
        return
    figures = {
        "checkpoints": "SecondsSinceCheckpoint",
        "worker reports": "QueueDepth",
        "file system": names.METRIC_FREE_SPACE,
    }
    for name, metric in figures.items():
        assert name == dependency or sum(metric in line for _, line in lines) >= 9
    late = [line for at, line in lines if at > 300]
    if dependency == "GPUs":
        assert all(line["GpusLost"] == 1 for line in late) or world.fault == "answers after a minute"
    elif world.fault != "answers after a minute":
        assert not any(figures[dependency] in line for line in late)  # absent is not a number


@cells(PROXY)
def test_a_proxy_serves_on(world: World, dependency: str, tmp_path: Path) -> None:
    asked: list[float] = []

    class Haproxy:
        def process(self) -> str:
            asked.append(world.seconds)
            return "7"

        def servers(self) -> list[ServerState]:
            return list(Table(rows(PROXY_SETTINGS), 1).servers.values())

        def statistics(self) -> Statistics:
            return parse_statistics(statistics(ok=3, total=3))

        def change(self, command: str) -> None:
            """HAProxy takes it."""

    outside, written = Outside(world, dependency, tmp_path), list[float]()
    supervisor = ProxySupervisor(
        PROXY_SETTINGS,
        Paths(tmp_path / "socket", tmp_path / "values"),
        outside.one("discovery", lambda: (HttpHost("i-1", "10.0.0.1"),), KeyError("PrivateIpAddress"), ()),
        outside.one("state", lambda state, ready: written.append(world.seconds), None, None),
        world,
        world.in_background,
        runtime=Haproxy(),  # type: ignore[arg-type]
    )
    world.at = [(STOP, supervisor.stop)]
    supervisor.run()
    assert world.blocking == 0
    assert world.longest < 1.0
    assert max(later - sooner for sooner, later in pairwise(asked)) < 2
    assert dependency == "state" or max(later - sooner for sooner, later in pairwise(written)) < 15


ERRORS: list[Exception] = [
    AgentError("a"),
    OSError(28, "No space left on device"),
    IsADirectoryError(21, "Is a directory"),
    ValueError("embedded null byte"),
    UnicodeDecodeError("utf-8", b"\xe9", 0, 1, "invalid"),
    KeyError("k"),
    TypeError("t"),
    AttributeError("a"),
    RecursionError("deep"),
    MemoryError(),
    OverflowError("int too large to convert to float"),
    AssertionError(),
    RuntimeError("can't start new thread"),
]
TASKS_OF_A_JOB = ["poll", "artifacts", "heartbeats", "record", "GPUs", "preparation", "start"]
any_error = strategies.sampled_from(ERRORS)
own_settings = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def raising(
    error: Exception, is_owner: Callable[..., bool], answer: Callable[..., Any]
) -> Callable[..., Any]:
    def call(*arguments: Any, **more: Any) -> Any:
        if is_owner(*arguments, **more):
            raise error.with_traceback(None)
        return answer(*arguments, **more)

    return call


@own_settings
@given(any_error, strategies.sampled_from(["start", "report", "clearing"]), strategies.integers(0, 2))
def test_an_error_of_a_worker_affects_that_one(error: Exception, step: str, owner: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world, tmp = World(""), Path(folder)
        outside = Outside(world, "", tmp)
        machine = Machine(world, lambda argv: "")
        if step == "clearing":
            machine.commands = raising(
                error, lambda argv: f"name=^/?gpu-spot-{owner}$" in argv, lambda argv: ""
            )
        reports = WorkerReports(dict.fromkeys(range(3), (0,)), None, world, tmp)
        if step == "report":
            reports.build = raising(error, lambda slot: slot == owner, reports.build)  # type: ignore[method-assign]
        started: list[str] = []

        def spawn(argv: list[str], more: Any) -> Any:
            slot = argv[argv.index("--name") + 1]
            started.append(slot)
            if step == "start" and slot == f"gpu-spot-{owner}":
                raise error.with_traceback(None)
            return machine.spawn()

        slots = [Slot(slot, 0) for slot in range(3)]
        heartbeats, service = outside.heartbeats, Service(image="image")
        workers = Workers(
            service, slots, heartbeats, machine, world, tmp, spawn=spawn, worker_reports=reports
        )
        while world.seconds < 60:
            assert workers.tick()
            world.sleep(0.5)
        names = [f"gpu-spot-{slot}" for slot in range(3)]
        tries = {"start": 5, "clearing": 0, "report": 1}[step]  # 2, 4, 8, 16 and 32 seconds apart
        assert [started.count(name) for name in names] == [tries if n == owner else 1 for n in range(3)]
        alive = {slot for at, slot in outside.received if at > 45}
        assert alive == ({0, 1, 2} if step == "report" else {0, 1, 2} - {owner})


@own_settings
@given(any_error, strategies.sampled_from(["secrets", "image"]), strategies.sampled_from(["ada", "bo", "cy"]))
def test_an_error_of_a_tenant_affects_that_one(error: Exception, step: str, owner: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = supervised.Bench(Path(folder))
        fails = raising(error, lambda tenant: tenant.name == owner, lambda tenant: {})
        if step == "secrets":
            bench.secret_variables = fails
        else:
            made = supervised.SupervisorDependencies

            def changed(**fields: Any) -> Any:
                return made(**fields | {"prepare_image": lambda tenant: tuple(fails(tenant))})

            with mock.patch.object(supervised, "SupervisorDependencies", changed):
                supervisor = bench.supervisor()
        if step == "secrets":
            supervisor = bench.supervisor()
        bench.pass_(supervisor, 60)
        assert sorted(bench.docker.pids()) == sorted({"ada", "bo", "cy"} - {owner})
        assert set(bench.heartbeats.waits or {}) == {owner}


@own_settings
@given(
    any_error,
    strategies.sampled_from(["poll", "artifacts", "heartbeats", "record", "GPUs", "preparation", "start"]),
)
def test_an_error_of_another_task_is_not_the_jobs(error: Exception, step: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world, tmp = World(""), Path(folder)
        outside, machine, jobs = Outside(world, "", tmp), Machine(world), JobList()
        act = {step: raising(error, lambda *_, **__: True, lambda: None)}.get

        def nothing(*_: Any, **__: Any) -> None:
            return None

        inspector = Inspector(
            SimpleNamespace(sample=act("GPUs", lambda: GpuSample()), expected=1, opens_again=lambda: True),  # type: ignore[arg-type]
            (tmp, None),
            {},
            lambda: False,
            world,
        )
        store = SimpleNamespace(read=lambda token: None, write=act("record", nothing))
        attempt = JobAttempt(1, configs.REVISION, "i-1", "g5.xlarge", "a", "spot", "primary", 0.0, 0.0, 0.0)
        if step == "heartbeats":
            outside.heartbeats._registry.record_heartbeat = act(step)  # type: ignore[method-assign]
        trainer = Trainer(
            Training("j", "jobs", "repo", configs.REVISION, ("true",), "u", "p", max_restarts=2),
            TrainingPaths(tmp, tmp, tmp, tmp / "artifacts", tmp / "checkpoints"),
            jobs,  # type: ignore[arg-type]
            outside.heartbeats,
            machine,
            world,
            LeaseRenewer(lambda: None, world),
            inspector,
            act("preparation", nothing),
            nothing,
            act("start", machine.spawn),
            on_poll=act("poll", nothing),
            results=SimpleNamespace(offer=act("artifacts", nothing), deliver=lambda *_: ""),  # type: ignore[arg-type]
            recorder=Recorder(store, attempt, lambda: 0.0, world, tmp),  # type: ignore[arg-type]
        )
        world.at = [(120, lambda: machine.running.update(dict.fromkeys(machine.running, 0)))]
        is_jobs = step in ("preparation", "start")
        assert trainer.run() == ("failed" if is_jobs else "done")
        assert len(machine.running) == (0 if is_jobs else 1)
        assert jobs.marks[-2:] == (["failed", "taken down"] if is_jobs else ["done", "taken down"])
