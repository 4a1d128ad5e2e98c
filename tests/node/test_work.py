"""Real processes and real signals; only time and the registry are ours."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from contracts.agent.config import HttpWorkers, Queue, Service
from tests.node.workbench import Bench
from tests.waiting import wait_until
from userdata.agent.aws.imds import LIFECYCLE_STATE, Metadata
from userdata.agent.machine.background import at_once
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import SystemHost
from userdata.agent.work import notice
from userdata.agent.work.heartbeat import HeartbeatSender
from userdata.agent.work.notice import Notice
from userdata.agent.work.process import STOP_SECONDS
from userdata.agent.work.service import queue
from userdata.agent.work.service.http_checks import HttpChecks
from userdata.agent.work.service.slots import (
    Slot,
    container_command,
    gpu_count,
    process_command,
    slots,
    with_variables,
)
from userdata.agent.work.service.workers import Workers

STUBBORN = "trap 'echo drained; exit 0' TERM; echo up; while :; do sleep 0.05; done"


def test_every_slot_runs_and_sends_a_heartbeat_per_interval(workbench: Bench) -> None:
    workers = workbench.started(STUBBORN)
    for _ in range(40):
        workbench.tick_after(0.5, workers)
    assert len(workbench.processes) == 2
    assert [b[0] for b in workbench.registry.heartbeats] == [(0, 1)] * 3
    assert {b[2:] for b in workbench.registry.heartbeats} == {("ready", None)}
    record = json.loads((workbench.tmp / "workers" / "1.json").read_text())
    pid = workbench.processes[1].pid
    [started] = [one.started for one in SystemHost().processes() if one.pid == pid]
    assert record == {"slot": 1, "gpu": 0, "pid": pid, "started": started}


def test_nothing_starts_and_no_heartbeat_is_sent_in_the_warm_pool(workbench: Bench) -> None:
    workbench.server.documents[LIFECYCLE_STATE] = "Warmed:Stopped"
    workers = workbench.workers(STUBBORN)
    for _ in range(5):
        workers.tick()
        workbench.clock.advance(10)
    assert workbench.processes == []
    assert workbench.registry.heartbeats == []
    workbench.server.documents[LIFECYCLE_STATE] = "InService"
    workers.tick()
    assert len(workbench.processes) == 2


def test_an_instance_that_goes_back_to_the_warm_pool_falls_silent(workbench: Bench) -> None:
    workers = workbench.workers(STUBBORN, count=1)
    workers.tick()
    workbench.server.documents[LIFECYCLE_STATE] = "Warmed:Stopped"
    for _ in range(5):
        workbench.tick_after(11, workers)
    assert len(workbench.registry.heartbeats) == 1


def test_nothing_starts_while_the_lifecycle_state_is_unknown(workbench: Bench) -> None:
    workbench.server.status = 503
    workers = workbench.workers(STUBBORN)
    workers.tick()
    assert workbench.processes == []


def test_an_interrupted_worker_is_ready_until_drain_at_and_reports_until_its_end(workbench: Bench) -> None:
    workers = workbench.started(STUBBORN, count=1)
    now = workbench.clock.wall()
    notice.write(workbench.tmp, Notice("spot", "terminate", "t", now + 120, now + 100, now))
    workers.tick()
    assert workbench.registry.heartbeats[-1] == ((0,), now, "ready", now + 120)  # at once, not a period later
    workbench.tick_after(100, workers)
    assert workbench.registry.heartbeats[-1][2] == "draining"
    workers.stop()
    wait_until(lambda: not workers.tick())
    assert workbench.processes[0].stdout.read() == b"drained\n"
    assert workbench.registry.left == [0]


def test_a_worker_that_fails_is_restarted_with_growing_pauses(workbench: Bench) -> None:
    workers = workbench.workers("exit 3", count=1)
    starts: list[float] = []
    for _ in range(200):
        before = len(workbench.processes)
        workers.tick()
        if len(workbench.processes) > before:
            starts.append(workbench.clock.monotonic())
            workbench.processes[-1].wait()
        workbench.clock.advance(0.5)
    gaps = [b - a for a, b in pairwise(starts)]
    assert gaps == sorted(gaps)
    assert gaps[:4] == pytest.approx([2.5, 4.5, 8.5, 16.5], abs=0.51)


def test_a_worker_counts_when_it_says_so(workbench: Bench) -> None:
    workers = workbench.started(f"touch $GPU_SPOT_READY.soon; {STUBBORN}", count=1, reports_readiness=True)
    workbench.tick_after(11, workers)
    assert workbench.registry.heartbeats == []
    (workbench.tmp / "ready" / "0" / "ready").touch()
    workbench.tick_after(11, workers)
    assert workbench.registry.heartbeats[-1][0] == (0,)


def test_a_worker_that_becomes_ready_is_reported_at_once(workbench: Bench) -> None:
    """The period began to count with nobody to report."""
    workers = workbench.started(STUBBORN, reports_readiness=True)
    workbench.tick_after(3, workers)
    assert workbench.registry.heartbeats == []
    for reported in ((0,), (0, 1)):
        (workbench.tmp / "ready" / str(reported[-1]) / "ready").touch()
        workbench.tick_after(0.5, workers)
        assert [sent[0] for sent in workbench.registry.heartbeats][-1:] == [reported]
    for _ in range(8):  # one that is ready now and then costs no write each time
        ready = workbench.tmp / "ready" / "0" / "ready"
        ready.unlink() if ready.exists() else ready.touch()
        workbench.tick_after(0.5, workers)
    assert len(workbench.registry.heartbeats) == 2


def test_a_heartbeat_that_waits_does_not_bring_a_worker_back(workbench: Bench) -> None:
    """A removal runs before a heartbeat that was built while an earlier write was running."""
    queue: list[Callable[[], None]] = []
    run: list[Callable[[Callable[[], None]], None]] = [at_once]
    metadata = Metadata(workbench.clock, workbench.server.url)
    heartbeats = HeartbeatSender(
        workbench.registry, metadata, workbench.clock, workbench.tmp, 10.0, lambda work: run[0](work)
    )
    heartbeats.send([0, 1])
    run[0] = queue.append
    for _ in range(2):
        workbench.clock.advance(10)
        heartbeats.send([0, 1])
    heartbeats.deregister(1)
    run[0] = at_once
    for work in queue:
        work()
    heartbeats.send([])
    heartbeats.send([])
    assert [sent[0] for sent in workbench.registry.heartbeats] == [(0, 1), (0,), (0,)]
    assert workbench.registry.left == [1]


def test_a_registry_that_is_away_stops_no_work_and_is_asked_once_a_period(workbench: Bench) -> None:
    workers = workbench.workers(STUBBORN, count=1)
    workbench.registry.down = True
    for _ in range(40):
        workers.tick()
        workbench.clock.advance(0.5)
    assert workbench.registry.asked == 2
    workbench.registry.down = False
    workbench.tick_after(11, workers)
    assert len(workbench.registry.heartbeats) == len(workbench.processes) == 1


def test_a_restart_request_restarts_one_worker_once(workbench: Bench) -> None:
    workers = workbench.started(STUBBORN)
    workbench.registry.restarts_requested = {1}
    workbench.tick_after(10, workers)
    assert workbench.registry.left == [1]  # a draining worker does not count
    wait_until(lambda: not workers.tick() or len(workbench.processes) == 3)
    assert workbench.processes[0].poll() is None
    assert workbench.processes[1].stdout.read() == b"drained\n"
    for _ in range(4):
        workbench.tick_after(10, workers)
    assert len(workbench.processes) == 3
    assert [report.starts for report in workbench.registry.worker_reports[-1].values()] == [1, 2]
    assert workbench.registry.first[1:4] == [frozenset(), frozenset({1}), frozenset()]


def test_a_worker_that_never_becomes_ready_follows_a_rollback(workbench: Bench) -> None:
    asked: list[float] = []
    row = [Service(command=("bash", "-c", STUBBORN), reports_readiness=True)]

    def release() -> Service:
        asked.append(workbench.clock.monotonic())
        return row[0]

    workbench.release = release
    workers = workbench.started(STUBBORN, count=1, reports_readiness=True)
    for _ in range(360):
        workbench.tick_after(0.5, workers)
    assert len(asked) == 3
    assert len(workbench.processes) == 1  # a model may load for long
    row[0] = Service(command=("bash", "-c", "echo other; sleep 60"), reports_readiness=True)
    workbench.clock.advance(60)
    wait_until(lambda: not workers.tick() or len(workbench.processes) == 2)
    assert workbench.processes[1].stdout.readline() == b"other\n"


def test_a_request_that_cannot_be_deleted_is_executed_once(workbench: Bench) -> None:
    workers = workbench.started(STUBBORN, count=1)
    workbench.registry.restarts_requested = {0}
    workbench.clock.advance(10)
    workbench.registry.deregister = lambda slot: None  # type: ignore[method-assign]
    workers.tick()
    wait_until(lambda: not workers.tick() or len(workbench.processes) == 2)
    for _ in range(4):
        workbench.tick_after(10, workers)
    assert len(workbench.processes) == 2


def test_a_worker_that_ignores_a_restart_is_killed_after_its_timeout(workbench: Bench) -> None:
    workers = workbench.started("trap '' TERM; echo up; while :; do sleep 0.05; done", count=1)
    workbench.registry.restarts_requested = {0}
    workbench.tick_after(10, workers)
    count = len(workbench.registry.heartbeats)
    workbench.tick_after(STOP_SECONDS - 1, workers)
    assert workbench.processes[0].poll() is None
    assert len(workbench.registry.heartbeats) == count  # it does not count meanwhile
    workbench.clock.advance(1)
    wait_until(lambda: not workers.tick() or len(workbench.processes) == 2)


def test_restart_requests_are_ignored_during_a_notice(workbench: Bench) -> None:
    workers = workbench.started(STUBBORN, count=1)
    now = workbench.clock.wall()
    notice.write(workbench.tmp, Notice("spot", "terminate", "t", now + 120, now + 100, now))
    workbench.registry.restarts_requested = {0}
    workbench.tick_after(10, workers)
    workbench.tick_after(10, workers)
    assert workbench.registry.left == []
    assert [len(heartbeat[0]) for heartbeat in workbench.registry.heartbeats] == [1, 1, 1]


def test_stopped_without_a_notice_the_workers_are_draining(workbench: Bench) -> None:
    workers = workbench.started(STUBBORN, count=1)
    workbench.processes[0].send_signal(signal.SIGSTOP)  # it has something to finish
    workers.stop()
    workers.tick()
    assert workbench.registry.heartbeats[-1][2:] == ("draining", None)
    workbench.processes[0].send_signal(signal.SIGCONT)
    wait_until(lambda: not workers.tick())


def test_a_slow_secret_delays_no_other_worker(workbench: Bench) -> None:
    workers = workbench.started(STUBBORN, count=1)
    asked: list[Callable[[], None]] = []
    workbench.run_in_background = asked.append  # and no answer comes
    workbench.processes[0].kill()
    wait_until(lambda: bool(workers.tick() and workbench.registry.left))
    for _ in range(6):
        workbench.clock.advance(5)
        assert workers.tick()
    assert len(workbench.processes) == len(asked) == 1
    workers.stop()
    assert not workers.tick()


def test_a_worker_that_ran_for_long_is_started_again_soon(workbench: Bench) -> None:
    workers = workbench.workers("exec sleep 600", count=1)

    def life(seconds: float) -> float:
        """Return after how many seconds the worker that is killed after so many is started again."""
        workers.tick()
        count = len(workbench.processes)
        workbench.clock.advance(seconds)
        workbench.processes[-1].kill()
        workbench.processes[-1].wait()
        died = workbench.clock.monotonic()
        while len(workbench.processes) == count:
            workers.tick()
            workbench.clock.advance(0.5)
        return workbench.clock.monotonic() - died

    assert [life(1), life(1), life(299), life(300), life(1)] == [2.5, 4.5, 8.5, 2.5, 4.5]


def test_a_registry_that_is_away_is_spoken_of_once_and_when_it_is_back(
    workbench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    workers = workbench.workers("exec sleep 600", count=2)
    workers.tick()
    workbench.registry.down = True
    for _ in range(6):
        workbench.tick_after(10, workers)
    workbench.processes[0].kill()
    workbench.processes[0].wait()
    workers.tick()
    workbench.registry.down = False
    workbench.tick_after(10, workers)
    said = [r.message for r in caplog.records if "registry" in r.message]
    assert said == ["registry fails", "registry recovered"]


def test_slots_share_gpus() -> None:
    assert [s.gpu for s in slots(Service(command=("w",), slots_per_gpu=2), 2)] == [0, 0, 1, 1]


def test_gpus_are_counted_and_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "0000:00:1e.0").mkdir()
    assert gpu_count(tmp_path) == 1
    with pytest.raises(AgentError, match="no GPU"):
        gpu_count(tmp_path / "none")


@pytest.mark.skipif(os.getuid() != 0, reason="only root may start processes of another user")
@pytest.mark.parametrize(("image", "user"), [("", "nobody"), ("r@sha256:" + "0" * 64, "root")])
def test_a_process_is_unprivileged_and_docker_is_called_by_root(
    image: str, user: str, workbench: Bench
) -> None:
    service = Service(command=("sleep", "60"), image=image, user="nobody")
    workers = Workers(service, [], workbench.heartbeats, SystemHost(), workbench.clock, workbench.tmp)
    process = workers._spawn(["sleep", "60"], {})
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
        account = pwd.getpwnam(user)
        assert re.search(rf"^Uid:\t{account.pw_uid}\t", status, re.M)
        assert re.search(rf"^Gid:\t{account.pw_gid}\t", status, re.M)
        if user == "nobody":
            assert re.search(rf"^Groups:\t{account.pw_gid} *$", status, re.M)
    finally:
        process.kill()
        process.wait()


def test_a_user_that_the_image_lacks_is_named(workbench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    service = Service(command=("sleep", "60"), user="no-such-user")
    workers = Workers(
        service, [Slot(0, 0)], workbench.heartbeats, SystemHost(), workbench.clock, workbench.tmp
    )
    workers.tick()
    [record] = [record for record in caplog.records if record.message == "worker not started"]
    assert "user 'no-such-user' does not exist; name " in record.fields["reason"]  # type: ignore[attr-defined]


def test_a_container_gets_one_gpu_no_rights_and_the_notice(tmp_path: Path) -> None:
    image = "1.dkr.ecr.us-west-2.amazonaws.com/worker@sha256:" + "0" * 64
    service = Service(image=image, command=("serve",))
    argv = container_command(service, Slot(3, 1), tmp_path, ["/data/imagenet"])
    assert "/data/imagenet:/data/imagenet:ro" in argv
    assert argv[-2:] == [image, "serve"]
    assert "nvidia.com/gpu=1" in argv
    assert f"{tmp_path}:{tmp_path}:ro" in argv
    assert argv[argv.index("--cap-drop") + 1] == "ALL"


def test_a_worker_of_two_gpus_sees_two_neighbours(tmp_path: Path) -> None:
    service = Service(image="w@sha256:" + "0" * 64, gpus_per_worker=2)
    both = slots(service, 4)
    assert [slot.gpus for slot in both] == [(0, 1), (2, 3)]
    argv = container_command(service, both[1], tmp_path)
    assert [option for option in argv if option.startswith("nvidia.com/gpu")] == [
        "nvidia.com/gpu=2",
        "nvidia.com/gpu=3",
    ]
    command = process_command(Service(command=("serve",), gpus_per_worker=2), both[1], tmp_path)
    assert "CUDA_VISIBLE_DEVICES=2,3" in command
    assert len(slots(service, 3)) == 1  # one of four is lost: its worker does not start


def test_a_port_is_an_argument_where_the_command_asks_for_it() -> None:
    command = with_variables(("--port", "$(GPU_SPOT_PORT)", "$(OTHER)"), {"GPU_SPOT_PORT": "8001"})
    assert command == ("--port", "8001", "$(OTHER)")


class Docker(SystemHost):
    """Docker with one container left over, until that is removed."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[list[str]] = []

    def run(self, argv: Sequence[str], timeout: float = 60, stdin: str = "", environment: Any = None) -> str:
        self.ran.append(list(argv))
        return "" if any("rm" in call for call in self.ran) else "0123456789ab"


QUEUE = Queue(secret="queues/ocr", name="ocr", max_length=10)
URL = "amqps://gpu-spot:pa55@b-1.example.com:5671"


def no_secret() -> Mapping[str, str]:
    raise AgentError("secret queues/ocr: ResourceNotFoundException")


def test_only_a_worker_gets_the_address_of_its_queue(
    workbench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    workbench.secrets = lambda: queue.environment(QUEUE, f"{URL}\n")
    says = "echo $SPOT_WORK_URL $SPOT_WORK_QUEUE $SPOT_WORK_TRIES $SPOT_WORK_MOST; sleep 60"
    workbench.workers(says, count=1).tick()
    [process] = workbench.processes
    assert process.stdout.readline().decode() == f"{URL} ocr 20 10\n"
    assert "pa55" not in Path(f"/proc/{process.pid}/cmdline").read_text()
    assert "pa55" not in "".join(capfd.readouterr())


def commands(workbench: Bench, workers: Workers) -> list[tuple[list[str], Mapping[str, str]]]:
    """Return what one pass starts, with the variables beside it; programs that sleep run in its place."""
    started: list[tuple[list[str], Mapping[str, str]]] = []

    def spawn(argv: list[str], more: Mapping[str, str]) -> subprocess.Popen[bytes]:
        started.append((argv, more))
        workbench.processes.append(subprocess.Popen(["sleep", "60"], start_new_session=True))
        return workbench.processes[-1]

    workers._spawn = spawn
    workers.tick()
    return started


def test_a_container_finds_its_queue_in_a_file_that_only_root_may_read(workbench: Bench) -> None:
    workbench.secrets = lambda: queue.environment(QUEUE, URL)
    workbench.host = docker = Docker()
    workers = workbench.workers("", count=1, image="r@sha256:" + "0" * 64)
    [(argv, more)] = commands(workbench, workers)
    file = Path(argv[argv.index("--env-file") + 1])
    assert f"SPOT_WORK_URL={URL}" in file.read_text().splitlines()
    assert file.stat().st_mode & 0o777 == 0o600
    assert "pa55" not in " ".join(argv)
    assert "SPOT_WORK_URL" not in more
    # One whose client was killed holds name and GPU.
    assert ["docker", "rm", "--force", "--volumes", "gpu-spot-0"] in docker.ran


def test_the_container_of_a_client_that_was_killed_ends_with_the_unit(workbench: Bench) -> None:
    """SIGKILL ends ``docker run``, not its container, which takes requests and has a GPU."""
    workbench.host = docker = Docker()
    workers = workbench.workers("", count=1, image="r@sha256:" + "0" * 64)
    commands(workbench, workers)
    docker.ran.clear()
    workers.stop()
    workers.run()
    assert ["docker", "rm", "--force", "--volumes", "gpu-spot-0"] in docker.ran


@pytest.mark.parametrize("image", [None, "r@sha256:" + "0" * 64])
def test_each_worker_has_its_own_port_as_an_argument(workbench: Bench, image: str | None) -> None:
    workbench.host = Docker()
    workbench.http = HttpChecks(HttpWorkers(8000), [0, 1], workbench.clock)
    workers = workbench.workers("serve --port $(GPU_SPOT_PORT)", image=image)
    started = [argv[-1] for argv, _ in commands(workbench, workers)]
    assert started == ["serve --port 8000", "serve --port 8001"]


def test_each_start_takes_the_secret_as_it_is_then(workbench: Bench) -> None:
    """A rotated password: the worker that the broker refuses ends, and its successor has the new one."""
    workbench.secrets = lambda: {"SPOT_WORK_URL": "amqps://a:old@b"}
    workers = workbench.workers("echo $SPOT_WORK_URL", count=1)
    workers.tick()
    wait_until(lambda: workbench.processes[0].poll() is not None)
    workbench.secrets = lambda: {"SPOT_WORK_URL": "amqps://a:new@b"}
    workers.tick()
    workbench.tick_after(2.0, workers)
    lines = [process.stdout.readline() for process in workbench.processes if process.stdout]
    assert lines == [b"amqps://a:old@b\n", b"amqps://a:new@b\n"]


def test_without_its_secret_a_worker_waits_and_with_an_earlier_one_it_starts(workbench: Bench) -> None:
    workbench.secrets = no_secret
    workers = workbench.workers("exit 3", count=1)
    for pause in (2.0, 4.0):
        assert workers.tick()
        workbench.tick_after(pause - 0.1, workers)
        assert workbench.processes == []
        workbench.clock.advance(0.1)
    workbench.secrets = dict
    workers.tick()
    assert len(workbench.processes) == 1
    wait_until(lambda: workbench.processes[0].poll() is not None)
    workbench.secrets = no_secret
    workers.tick()
    workbench.tick_after(300.0, workers)
    assert len(workbench.processes) == 2


@pytest.mark.parametrize("text", ["", "pa55word", "https://a:pa55@b", "amqps://a:pa55@b c", "amqps://"])
def test_what_is_no_address_of_a_broker_is_not_shown(text: str) -> None:
    with pytest.raises(AgentError, match=r"^secret queues/ocr is not a broker URL; store ") as raised:
        queue.environment(QUEUE, text)
    assert "pa55" not in str(raised.value)
