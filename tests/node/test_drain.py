"""A drain with an agent that is killed: no new worker, and one SIGTERM for each that runs."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from contracts.agent.config import HttpWorkers
from contracts.agent.names import UNIT_WORK
from tests.node import configs
from tests.node.configs import FakeClock
from tests.node.jobs import MakeNode
from tests.node.metadata import MetadataServer
from tests.node.test_watch import Node
from tests.node.units import CommandHost
from tests.node.workbench import Bench
from tests.soak import sample
from tests.waiting import wait_until
from userdata.agent import tasks
from userdata.agent.aws import plain_http
from userdata.agent.aws.imds import LIFECYCLE_STATE
from userdata.agent.machine.control_groups import kill_others
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import SystemHost
from userdata.agent.work import notice
from userdata.agent.work.notice import Notice
from userdata.agent.work.service import workers as supervisor
from userdata.agent.work.service.http_checks import HttpChecks

UNTIL_STOPPED = "trap 'echo term' TERM; echo up; while [ ! -e {stop} ]; do sleep 0.02; done; echo drained"
"""A worker that says each SIGTERM that it gets, and ends when the file is there."""
UNITS = Path(supervisor.__file__).parents[2] / "units"


def announce(bench: Bench, drain_in: float = 0.0, seconds: float = 30.0) -> None:
    """Write a notice whose deadline is ``seconds`` after the drain's start."""
    now = bench.clock.wall()
    drain_at = now + drain_in
    notice.write(bench.tmp, Notice("spot", "terminate", "t", drain_at + seconds, drain_at, now))


def until_stopped(bench: Bench) -> tuple[str, Path]:
    stop = bench.tmp / "stop"
    return UNTIL_STOPPED.format(stop=stop), stop


def output(bench: Bench, worker: int = 0) -> bytes:
    stdout = bench.processes[worker].stdout
    assert stdout
    return stdout.read()


def test_no_worker_starts_in_the_drain_and_the_unit_ends(workbench: Bench) -> None:
    announce(workbench)
    assert not workbench.workers("echo up", count=2).tick()
    assert workbench.processes == []


def test_a_worker_that_ends_before_the_drain_is_replaced_and_in_it_none_is(workbench: Bench) -> None:
    workers = workbench.workers("exit 3", count=1)
    announce(workbench, drain_in=5.0)
    for _ in range(100):
        workers.tick()
        wait_until(lambda: all(one.poll() is not None for one in workbench.processes))
        workbench.clock.advance(0.25)
    assert 1 < len(workbench.processes) <= 3
    assert not workers.tick()


@pytest.mark.parametrize("is_signalled", [True, False])
def test_the_next_agent_continues_the_drain_of_one_that_was_killed(
    workbench: Bench, is_signalled: bool
) -> None:
    command, stop = until_stopped(workbench)
    first = workbench.started(command, count=1)
    announce(workbench)
    if is_signalled:
        first.stop()
        first.tick()
    del first  # kill -9
    workbench.clock.advance(10)  # RestartSec
    second = workbench.workers(command, count=1)
    second.adopt()
    for _ in range(5):
        assert second.tick()
        workbench.clock.advance(1)
    assert workbench.registry.heartbeats[-1][0::2] == ((0,), "draining")
    stop.touch()
    wait_until(lambda: not second.tick())
    assert output(workbench) == b"term\ndrained\n"
    assert len(workbench.processes) == 1
    assert workbench.registry.left == [0]


def test_an_adopted_worker_is_killed_when_its_time_is_up(workbench: Bench) -> None:
    command, _ = until_stopped(workbench)
    workbench.started(command, count=1)
    announce(workbench)
    workbench.clock.advance(10)
    second = workbench.workers(command, count=1)
    second.adopt()
    assert second.tick()
    workbench.clock.advance(18.0)  # two seconds before the deadline: a tenth of what was left
    wait_until(lambda: not second.tick())
    assert workbench.processes[0].wait() == -signal.SIGKILL


def test_an_http_worker_is_adopted_and_gets_its_signal_once_its_requests_have_ended(workbench: Bench) -> None:
    command, stop = until_stopped(workbench)
    connections = [1]

    def checks() -> HttpChecks:
        return HttpChecks(
            HttpWorkers(port=8000), [0], workbench.clock, connections=lambda port: connections[0]
        )

    workbench.http = checks()
    first = workbench.started(command, count=1)
    announce(workbench)
    first.stop()
    first.tick()
    workbench.http = checks()
    second = workbench.workers(command, count=1)
    second.adopt()
    for _ in range(8):
        assert second.tick()
        workbench.clock.advance(1)
    assert not (workbench.tmp / "workers" / "0.stopping").exists()
    connections[0] = 0
    second.tick()
    assert (workbench.tmp / "workers" / "0.stopping").exists()
    stop.touch()
    wait_until(lambda: not second.tick())
    assert output(workbench) == b"term\ndrained\n"


def test_a_worker_that_is_being_started_at_the_signal_gets_it_too(workbench: Bench) -> None:
    command, stop = until_stopped(workbench)
    workers = workbench.workers(command, count=1)
    spawn = workers._spawn

    def interrupted(argv: list[str], more: object) -> subprocess.Popen[bytes]:
        started = spawn(argv, {})
        workers.stop()  # the handler runs before the worker is recorded
        return started

    workers._spawn = interrupted
    workers.tick()
    workbench.wait_up()
    workers.tick()
    stop.touch()
    wait_until(lambda: not workers.tick())
    assert output(workbench) == b"term\ndrained\n"


def test_a_process_with_the_id_of_a_worker_is_not_adopted(workbench: Bench) -> None:
    workbench.started("echo up; sleep 60", count=1)
    path = workbench.tmp / "workers" / "0.json"
    path.write_text(path.read_text().replace('"started": ', '"started": 9'))
    announce(workbench)
    second = workbench.workers("echo up", count=1)
    second.adopt()
    assert not second.tick()
    assert workbench.processes[0].poll() is None


def test_work_in_a_drain_pulls_nothing_and_ends_what_runs(
    make_node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_node(host=CommandHost())
    made.config = configs.load(configs.service(service={"command": ["worker"], "gpus": 1}))
    made.clients = None  # nothing is asked before the workers are supervised
    made.heartbeat_sender = lambda: None  # type: ignore[method-assign,assignment,return-value]
    monkeypatch.setattr(tasks.Node, "gpus", None)
    adopted: list[str] = []
    monkeypatch.setattr(supervisor.Workers, "adopt", lambda self: adopted.append("adopt"))
    monkeypatch.setattr(supervisor.Workers, "run", lambda self: adopted.append("run"))
    now = made.clock.wall()
    notice.write(made.directory, Notice("spot", "terminate", "t", now + 30, now, now))
    assert tasks.work(made) == 0
    assert adopted == ["adopt", "run"]


def test_systemd_leaves_workers_to_the_agent_alone() -> None:
    assert "\nKillMode=process\n" in (UNITS / UNIT_WORK).read_text()


@pytest.mark.parametrize(
    "group", ["0::/system.slice/{}", "12:pids:/user.slice\n1:name=systemd:/system.slice/{}"]
)
def test_the_rest_of_a_unit_is_killed_only_from_inside_it(tmp_path: Path, group: str) -> None:
    other = subprocess.Popen(["sleep", "60"])

    def place(name: str, text: str) -> None:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "cgroup").write_text(text + "\n")

    try:
        kill_others(UNIT_WORK, tmp_path)  # no control groups
        for name in (str(os.getpid()), str(other.pid)):
            place(name, group.format(UNIT_WORK))
        place("self", "0::/user.slice/session-1.scope")
        kill_others(UNIT_WORK, tmp_path)
        place("self", group.format(UNIT_WORK))
        place(str(other.pid), group.format("gpu-spot-run.service"))
        kill_others(UNIT_WORK, tmp_path)
        assert other.poll() is None
        place(str(other.pid), group.format(UNIT_WORK))
        kill_others(UNIT_WORK, tmp_path)
        assert other.wait() == -signal.SIGKILL
        kill_others(UNIT_WORK, tmp_path)  # gone meanwhile
    finally:
        other.kill()


@pytest.mark.parametrize(
    ("shown", "pid"),
    [
        ("MainPID=12\nSubState=running\n", 12),
        ("MainPID=0\nSubState=auto-restart\n", 0),
        ("SubState=auto-restart-queued\nMainPID=0\n", 0),
        ("MainPID=0\nSubState=stop-post\n", 0),
        ("MainPID=0\nSubState=dead\nJob=71\n", 0),
        ("MainPID=0\nSubState=dead\nJob=\n", None),
        ("MainPID=0\nSubState=failed\n", None),
        ("MainPID=0\nSubState=exited\n", None),
        ("", None),
    ],
)
def test_a_unit_that_systemd_restarts_has_not_ended(shown: str, pid: int | None) -> None:
    class Systemd(SystemHost):
        def run(self, argv: object, stdin: str = "", environment: object = None) -> str:
            return shown

    assert Systemd().main_pid(UNIT_WORK) == pid


# The watcher.


@pytest.fixture
def service(tmp_path: Path, clock: FakeClock, metadata_server: MetadataServer) -> Node:
    return Node(tmp_path, clock, metadata_server, configs.service())


@pytest.fixture
def unconnected(metadata_server: MetadataServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours of simulated time are thousands of requests; other tests make each over a connection."""

    def answer(
        _: object, method: str, path: str, headers: Mapping[str, str], timeout: float
    ) -> tuple[int, dict[str, str], str]:
        status, answered, text = metadata_server.answer(method, path, headers)
        return status, {name.lower(): value for name, value in answered.items()}, text

    monkeypatch.setattr(plain_http, "request", answer)


def test_a_process_that_is_started_after_the_signal_gets_its_own(service: Node) -> None:
    service.interrupt()
    service.passes(101)
    service.host.pids[UNIT_WORK] = 0  # killed; systemd waits ten seconds
    service.server.documents[LIFECYCLE_STATE] = "Terminated"
    service.passes(5)
    assert service.hook_calls == []  # workers that drain are still there
    service.host.pids[UNIT_WORK] = 99
    service.passes(3)
    assert service.signals() == [(12, signal.SIGTERM)]  # it would die of it before it has a handler
    service.passes(4)
    assert service.signals() == [(12, signal.SIGTERM), (99, signal.SIGTERM)]
    service.passes(3)
    assert len(service.signals()) == 2


@pytest.mark.parametrize("drain_seconds", [0, 5, 10, 30, 110])
def test_the_signal_is_sent_before_the_drain_and_ten_seconds_before_the_end(
    tmp_path: Path, clock: FakeClock, metadata_server: MetadataServer, drain_seconds: int
) -> None:
    node = Node(tmp_path, clock, metadata_server, configs.service(drainSeconds=drain_seconds))
    sent: list[float] = []
    node.host.signal = lambda pid, number: sent.append(clock.monotonic())  # type: ignore[method-assign]
    clock.advance(0.6)  # the document's time is in whole seconds, polls are not
    node.interrupt()
    node.passes(121)
    [at] = sent
    left = node.notice().deadline - node.start - at
    wanted = max(drain_seconds, 10)
    assert wanted < left < wanted + 2


@pytest.mark.usefixtures("unconnected")
def test_a_hook_that_is_never_active_is_not_asked_for_each_second_for_ever(service: Node) -> None:
    service.hook = lambda: False
    deadline = service.interrupt()
    service.passes(120 + 3600)
    calls = service.hook_calls
    assert sum(at <= deadline + 60 for at in calls) == pytest.approx(63, abs=3)
    late = [at for at in calls if at > deadline + 60]
    assert len(late) == pytest.approx(59, abs=2)
    assert all(b - a >= 59 for a, b in pairwise(late))


@pytest.mark.usefixtures("unconnected")
def test_a_long_hook_that_is_not_active_is_asked_for_each_second_only_near_its_end(service: Node) -> None:
    service.body["hooks"]["terminateSeconds"] = 7200
    service.restart()
    service.hook = lambda: False
    service.host.pids.clear()
    service.server.documents[LIFECYCLE_STATE] = "Terminated"
    service.passes(7200 + 600)
    assert 300 < len(service.hook_calls) < 420
    end = service.hook_calls[0] + 7200
    assert any(end - 3 <= at < end for at in service.hook_calls)


def play(node: Node, seed: int) -> None:
    """Random lives of watcher and workload from a notice on; AWS refuses, or is done and does not answer."""
    chance, state = random.Random(seed), {"completed": 0.0, "active_at": 0.0}
    clock, deadline = node.clock, node.interrupt()
    ended_at = clock.monotonic() + chance.uniform(100, 140)
    state["active_at"] = clock.monotonic() + chance.uniform(0, 60)
    node.server.documents[LIFECYCLE_STATE] = "Terminated" if chance.random() < 0.7 else "InService"

    def hook() -> bool:
        if chance.random() < 0.2:
            raise AgentError("autoscaling: Throttling")
        if state["completed"] or clock.monotonic() < state["active_at"]:
            return False  # "No active Lifecycle Action found"
        state["completed"] = clock.monotonic()
        if chance.random() < 0.3:
            raise AgentError("autoscaling: ReadTimeoutError")
        return True

    node.hook = hook
    while clock.monotonic() < deadline + 300:
        node.passes(chance.uniform(1, 20))
        if chance.random() < 0.3 and clock.monotonic() < deadline:
            node.restart()  # the watcher is killed
        if clock.monotonic() >= ended_at:
            node.host.pids.pop(UNIT_WORK, None)
        elif chance.random() < 0.2:
            node.host.pids[UNIT_WORK] = chance.choice((0, 12, 13))
    assert state["completed"], "the hook was not completed"
    assert state["completed"] >= min(ended_at, deadline - 4), "the work was cut"
    assert state["completed"] <= max(deadline, state["active_at"]) + 10
    assert len(node.hook_calls) < 200


@pytest.mark.usefixtures("unconnected")
@pytest.mark.parametrize("part", sample(range(4), 4))
def test_random_lives_complete_the_hook_once_and_cut_no_work(
    part: int, tmp_path: Path, metadata_server: MetadataServer
) -> None:
    for seed in range(part, 200, 4):
        metadata_server.documents.clear()
        play(Node(tmp_path / str(seed), FakeClock(), metadata_server, configs.service()), seed)
