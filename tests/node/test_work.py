"""Real processes and real signals; only time and the registry are ours."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.node.beats import BeatList
from tests.node.clocks import FakeClock
from tests.node.metadata import MetadataServer
from userdata.agent.aws.imds import LIFECYCLE_STATE, Metadata
from userdata.agent.config.model import Queue, Service
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import SystemHost
from userdata.agent.work import notice, queue
from userdata.agent.work.beside import Aside
from userdata.agent.work.heart import Heart
from userdata.agent.work.notice import Notice
from userdata.agent.work.process import STOP_SECONDS
from userdata.agent.work.pulses import Pulses
from userdata.agent.work.workers import Slot, Workers, container_command, gpu_count, slots

STUBBORN = "trap 'echo drained; exit 0' TERM; echo up; while :; do sleep 0.05; done"


class Bench:
    def __init__(self, tmp: Path, clock: FakeClock, server: MetadataServer) -> None:
        self.tmp, self.clock, self.server, self.registry = tmp, clock, server, BeatList()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.secrets: Callable[[], Mapping[str, str]] = dict
        self.aside: Aside = lambda work: work()
        self.release: Callable[[], Service] | None = None
        self.host: SystemHost = SystemHost()
        self.heart = Heart(self.registry, Metadata(clock, server.url), clock, tmp, 10.0)

    def workers(self, command: str, count: int = 2, **service: Any) -> Workers:
        def spawn(argv: list[str], more: Mapping[str, str]) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                argv, stdout=subprocess.PIPE, start_new_session=True, env={**os.environ, **more}
            )
            self.processes.append(process)
            return process

        spec = Service(command=("bash", "-c", command), **service)
        places = [Slot(n, 0) for n in range(count)]
        return Workers(
            spec,
            places,
            self.heart,
            self.host,
            self.clock,
            self.tmp,
            spawn=spawn,
            secrets=lambda: self.secrets(),
            pulses=Pulses(dict.fromkeys(range(count), 0), None, self.clock, self.tmp),
            aside=lambda work: self.aside(work),
            release=self.release,
        )

    def wait_up(self) -> None:
        for process in self.processes:
            assert process.stdout
            assert process.stdout.readline() == b"up\n"


def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "condition did not come true"
        time.sleep(0.01)


@pytest.fixture
def bench(tmp_path: Path, clock: FakeClock, metadata_server: MetadataServer) -> Iterator[Bench]:
    bench = Bench(tmp_path, clock, metadata_server)
    yield bench
    for process in bench.processes:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def test_every_slot_runs_and_beats_once_a_period(bench: Bench) -> None:
    workers = bench.workers(STUBBORN)
    workers.tick()
    bench.wait_up()
    for _ in range(40):
        bench.clock.advance(0.5)
        workers.tick()
    assert len(bench.processes) == 2
    assert [b[0] for b in bench.registry.beats] == [(0, 1)] * 3
    assert {b[2:] for b in bench.registry.beats} == {("ready", None)}
    record = json.loads((bench.tmp / "workers" / "1.json").read_text())
    assert record == {"slot": 1, "gpu": 0, "pid": bench.processes[1].pid}


def test_nothing_starts_or_beats_in_the_warm_pool(bench: Bench) -> None:
    bench.server.documents[LIFECYCLE_STATE] = "Warmed:Stopped"
    workers = bench.workers(STUBBORN)
    for _ in range(5):
        workers.tick()
        bench.clock.advance(10)
    assert bench.processes == []
    assert bench.registry.beats == []
    bench.server.documents[LIFECYCLE_STATE] = "InService"
    workers.tick()
    assert len(bench.processes) == 2


def test_an_instance_that_goes_back_to_the_warm_pool_falls_silent(bench: Bench) -> None:
    workers = bench.workers(STUBBORN, count=1)
    workers.tick()
    bench.server.documents[LIFECYCLE_STATE] = "Warmed:Stopped"
    for _ in range(5):
        bench.clock.advance(11)
        workers.tick()
    assert len(bench.registry.beats) == 1


def test_nothing_starts_while_the_lifecycle_state_is_unknown(bench: Bench) -> None:
    bench.server.status = 503
    workers = bench.workers(STUBBORN)
    workers.tick()
    assert bench.processes == []


def test_a_doomed_worker_stays_ready_until_drain_at_and_beats_until_its_end(bench: Bench) -> None:
    workers = bench.workers(STUBBORN, count=1)
    workers.tick()
    bench.wait_up()
    now = bench.clock.wall()
    notice.write(bench.tmp, Notice("spot", "terminate", "t", now + 120, now + 100, now))
    workers.tick()
    assert bench.registry.beats[-1] == ((0,), now, "ready", now + 120)  # at once, not a period later
    bench.clock.advance(100)
    workers.tick()
    assert bench.registry.beats[-1][2] == "draining"
    workers.stop()
    until(lambda: not workers.tick())
    assert bench.processes[0].stdout
    assert bench.processes[0].stdout.read() == b"drained\n"
    assert bench.registry.left == [0]


def test_a_worker_that_fails_is_restarted_with_growing_pauses(bench: Bench) -> None:
    workers = bench.workers("exit 3", count=1)
    starts: list[float] = []
    for _ in range(200):
        before = len(bench.processes)
        workers.tick()
        if len(bench.processes) > before:
            starts.append(bench.clock.monotonic())
            bench.processes[-1].wait()
        bench.clock.advance(0.5)
    gaps = [b - a for a, b in pairwise(starts)]
    assert gaps == sorted(gaps)
    assert gaps[:4] == pytest.approx([2.5, 4.5, 8.5, 16.5], abs=0.51)


def test_a_worker_counts_when_it_says_so(bench: Bench) -> None:
    workers = bench.workers(f"touch $GPU_SPOT_READY.soon; {STUBBORN}", count=1, says_ready=True)
    workers.tick()
    bench.wait_up()
    bench.clock.advance(11)
    workers.tick()
    assert bench.registry.beats == []
    (bench.tmp / "ready" / "0" / "ready").touch()
    bench.clock.advance(11)
    workers.tick()
    assert bench.registry.beats[-1][0] == (0,)


def test_a_registry_that_is_away_stops_no_work(bench: Bench) -> None:
    workers = bench.workers(STUBBORN, count=1)
    bench.registry.down = True
    for _ in range(3):
        workers.tick()
        bench.clock.advance(11)
    bench.registry.down = False
    workers.tick()
    assert len(bench.registry.beats) == 1
    assert len(bench.processes) == 1


def test_a_registry_that_is_away_is_asked_once_a_period(bench: Bench) -> None:
    workers = bench.workers(STUBBORN, count=1)
    bench.registry.down = True
    for _ in range(40):
        workers.tick()
        bench.clock.advance(0.5)
    assert bench.registry.asked == 2


def test_a_wish_starts_one_worker_anew_and_once(bench: Bench) -> None:
    workers = bench.workers(STUBBORN)
    workers.tick()
    bench.wait_up()
    bench.registry.wished = {1}
    bench.clock.advance(10)
    workers.tick()
    assert bench.registry.left == [1]  # while it drains nobody counts on it
    until(lambda: not workers.tick() or len(bench.processes) == 3)
    assert bench.processes[0].poll() is None
    assert bench.processes[1].stdout
    assert bench.processes[1].stdout.read() == b"drained\n"
    for _ in range(4):
        bench.clock.advance(10)
        workers.tick()
    assert len(bench.processes) == 3
    assert [pulse.starts for pulse in bench.registry.pulses[-1].values()] == [1, 2]
    assert bench.registry.first[1:4] == [frozenset(), frozenset({1}), frozenset()]


def test_who_does_not_come_to_be_ready_goes_back_with_a_release_that_is_taken_back(bench: Bench) -> None:
    asked: list[float] = []
    row = [Service(command=("bash", "-c", STUBBORN), says_ready=True)]

    def release() -> Service:
        asked.append(bench.clock.monotonic())
        return row[0]

    bench.release = release
    workers = bench.workers(STUBBORN, count=1, says_ready=True)
    workers.tick()
    bench.wait_up()
    for _ in range(360):
        bench.clock.advance(0.5)
        workers.tick()
    assert len(asked) == 3
    assert len(bench.processes) == 1  # a model may load for long
    row[0] = Service(command=("bash", "-c", "echo other; sleep 60"), says_ready=True)
    bench.clock.advance(60)
    until(lambda: not workers.tick() or len(bench.processes) == 2)
    assert bench.processes[1].stdout
    assert bench.processes[1].stdout.readline() == b"other\n"


def test_a_wish_that_cannot_be_taken_off_the_registry_is_carried_out_once(bench: Bench) -> None:
    workers = bench.workers(STUBBORN, count=1)
    workers.tick()
    bench.wait_up()
    bench.registry.wished = {0}
    bench.clock.advance(10)
    bench.registry.leave = lambda slot: None  # type: ignore[method-assign]
    workers.tick()
    until(lambda: not workers.tick() or len(bench.processes) == 2)
    for _ in range(4):
        bench.clock.advance(10)
        workers.tick()
    assert len(bench.processes) == 2


def test_a_worker_that_ignores_a_wish_is_killed_when_its_time_is_up(bench: Bench) -> None:
    workers = bench.workers("trap '' TERM; echo up; while :; do sleep 0.05; done", count=1)
    workers.tick()
    bench.wait_up()
    bench.registry.wished = {0}
    bench.clock.advance(10)
    workers.tick()
    beats = len(bench.registry.beats)
    bench.clock.advance(STOP_SECONDS - 1)
    workers.tick()
    assert bench.processes[0].poll() is None
    assert len(bench.registry.beats) == beats  # nobody counts on it meanwhile
    bench.clock.advance(1)
    until(lambda: not workers.tick() or len(bench.processes) == 2)


def test_while_there_is_a_notice_nobody_wishes_anything(bench: Bench) -> None:
    workers = bench.workers(STUBBORN, count=1)
    workers.tick()
    bench.wait_up()
    now = bench.clock.wall()
    notice.write(bench.tmp, Notice("spot", "terminate", "t", now + 120, now + 100, now))
    bench.registry.wished = {0}
    bench.clock.advance(10)
    workers.tick()
    bench.clock.advance(10)
    workers.tick()
    assert bench.registry.left == []
    assert [len(beat[0]) for beat in bench.registry.beats] == [1, 1, 1]


def test_told_to_stop_without_a_notice_the_workers_are_draining(bench: Bench) -> None:
    workers = bench.workers(STUBBORN, count=1)
    workers.tick()
    bench.wait_up()
    bench.processes[0].send_signal(signal.SIGSTOP)  # it has something to finish
    workers.stop()
    workers.tick()
    assert bench.registry.beats[-1][2:] == ("draining", None)
    bench.processes[0].send_signal(signal.SIGCONT)
    until(lambda: not workers.tick())


def test_a_secret_that_takes_long_keeps_nobody_from_being_looked_after(bench: Bench) -> None:
    workers = bench.workers(STUBBORN, count=1)
    workers.tick()
    bench.wait_up()
    asked: list[Callable[[], None]] = []
    bench.aside = asked.append  # and no answer comes
    bench.processes[0].kill()
    until(lambda: bool(workers.tick() and bench.registry.left))
    for _ in range(6):
        bench.clock.advance(5)
        assert workers.tick()
    assert len(bench.processes) == len(asked) == 1
    workers.stop()
    assert not workers.tick()


def test_a_worker_that_ran_for_long_is_started_again_soon(bench: Bench) -> None:
    workers = bench.workers("exec sleep 600", count=1)

    def life(seconds: float) -> float:
        """Return after how many seconds the worker that is killed after so many is started again."""
        workers.tick()
        count = len(bench.processes)
        bench.clock.advance(seconds)
        bench.processes[-1].kill()
        bench.processes[-1].wait()
        died = bench.clock.monotonic()
        while len(bench.processes) == count:
            workers.tick()
            bench.clock.advance(0.5)
        return bench.clock.monotonic() - died

    assert [life(1), life(1), life(299), life(300), life(1)] == [2.5, 4.5, 8.5, 2.5, 4.5]


def test_a_registry_that_is_away_is_spoken_of_once_and_when_it_is_back(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    workers = bench.workers("exec sleep 600", count=2)
    workers.tick()
    bench.registry.down = True
    for _ in range(6):
        bench.clock.advance(10)
        workers.tick()
    bench.processes[0].kill()
    bench.processes[0].wait()
    workers.tick()
    bench.registry.down = False
    bench.clock.advance(10)
    workers.tick()
    said = [r.message for r in caplog.records if "heart" in r.message or "remove" in r.message]
    assert said == ["heartbeats fail; the work goes on", "heartbeats are back"]


def test_slots_share_gpus() -> None:
    assert [s.gpu for s in slots(Service(command=("w",), slots_per_gpu=2), 2)] == [0, 0, 1, 1]


def test_gpus_are_counted_and_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "0000:00:1e.0").mkdir()
    assert gpu_count(tmp_path) == 1
    with pytest.raises(AgentError, match="no GPU"):
        gpu_count(tmp_path / "none")


@pytest.mark.skipif(os.getuid() != 0, reason="only root may start processes of another user")
@pytest.mark.parametrize(("image", "user"), [("", "nobody"), ("r@sha256:" + "0" * 64, "root")])
def test_a_process_is_nobody_special_and_docker_is_called_by_root(
    image: str, user: str, bench: Bench
) -> None:
    service = Service(command=("sleep", "60"), image=image, user="nobody")
    workers = Workers(service, [], bench.heart, SystemHost(), bench.clock, bench.tmp)
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


def test_a_user_that_the_image_lacks_is_named(bench: Bench) -> None:
    service = Service(command=("sleep", "60"), user="no-such-user")
    workers = Workers(service, [Slot(0, 0)], bench.heart, SystemHost(), bench.clock, bench.tmp)
    with pytest.raises(AgentError, match="user: 'no-such-user' is not there"):
        workers.tick()


def test_a_container_gets_one_gpu_no_rights_and_the_notice(tmp_path: Path) -> None:
    image = "1.dkr.ecr.us-west-2.amazonaws.com/worker@sha256:" + "0" * 64
    service = Service(image=image, command=("serve",))
    argv = container_command(service, Slot(3, 1), tmp_path, ["/data/imagenet"])
    assert "/data/imagenet:/data/imagenet:ro" in argv
    assert argv[-2:] == [image, "serve"]
    assert "nvidia.com/gpu=1" in argv
    assert f"{tmp_path}:{tmp_path}:ro" in argv
    assert argv[argv.index("--cap-drop") + 1] == "ALL"


class Docker(SystemHost):
    """Docker with one container left over, until that is removed."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[list[str]] = []

    def run(self, argv: Sequence[str], stdin: str = "", environment: Any = None) -> str:
        self.ran.append(list(argv))
        return "" if any("rm" in call for call in self.ran) else "0123456789ab"


QUEUE = Queue(secret="queues/ocr", name="ocr", most=10)
URL = "amqps://gpu-spot:pa55@b-1.example.com:5671"


def no_secret() -> Mapping[str, str]:
    raise AgentError("secret queues/ocr: ResourceNotFoundException")


def test_a_worker_is_told_where_its_queue_is_and_nobody_else(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    bench.secrets = lambda: queue.environment(QUEUE, f"{URL}\n")
    says = "echo $SPOT_WORK_URL $SPOT_WORK_QUEUE $SPOT_WORK_TRIES $SPOT_WORK_MOST; sleep 60"
    bench.workers(says, count=1).tick()
    [process] = bench.processes
    assert process.stdout
    assert process.stdout.readline().decode() == f"{URL} ocr 20 10\n"
    assert "pa55" not in Path(f"/proc/{process.pid}/cmdline").read_text()
    assert "pa55" not in "".join(capfd.readouterr())


def test_a_container_finds_its_queue_in_a_file_that_only_root_may_read(bench: Bench) -> None:
    bench.secrets = lambda: queue.environment(QUEUE, URL)
    bench.host = docker = Docker()
    workers = bench.workers("", count=1, image="r@sha256:" + "0" * 64)
    started: list[tuple[list[str], Mapping[str, str]]] = []

    def spawn(argv: list[str], more: Mapping[str, str]) -> subprocess.Popen[bytes]:
        started.append((argv, more))
        bench.processes.append(subprocess.Popen(["sleep", "60"], start_new_session=True))
        return bench.processes[-1]

    workers._spawn = spawn
    workers.tick()
    [(argv, more)] = started
    file = Path(argv[argv.index("--env-file") + 1])
    assert f"SPOT_WORK_URL={URL}" in file.read_text().splitlines()
    assert file.stat().st_mode & 0o777 == 0o600
    assert "pa55" not in " ".join(argv)
    assert "SPOT_WORK_URL" not in more
    # One whose client was killed holds name and GPU.
    assert ["docker", "rm", "--force", "--volumes", "gpu-spot-0"] in docker.ran


def test_each_start_takes_the_secret_as_it_is_then(bench: Bench) -> None:
    """A rotated password: the worker that the broker refuses ends, and its successor has the new one."""
    bench.secrets = lambda: {"SPOT_WORK_URL": "amqps://a:old@b"}
    workers = bench.workers("echo $SPOT_WORK_URL", count=1)
    workers.tick()
    until(lambda: bench.processes[0].poll() is not None)
    bench.secrets = lambda: {"SPOT_WORK_URL": "amqps://a:new@b"}
    workers.tick()
    bench.clock.advance(2.0)
    workers.tick()
    lines = [process.stdout.readline() for process in bench.processes if process.stdout]
    assert lines == [b"amqps://a:old@b\n", b"amqps://a:new@b\n"]


def test_without_its_secret_a_worker_waits_and_with_an_earlier_one_it_starts(bench: Bench) -> None:
    bench.secrets = no_secret
    workers = bench.workers("exit 3", count=1)
    for pause in (2.0, 4.0):
        assert workers.tick()
        bench.clock.advance(pause - 0.1)
        workers.tick()
        assert bench.processes == []
        bench.clock.advance(0.1)
    bench.secrets = dict
    workers.tick()
    assert len(bench.processes) == 1
    until(lambda: bench.processes[0].poll() is not None)
    bench.secrets = no_secret
    workers.tick()
    bench.clock.advance(300.0)
    workers.tick()
    assert len(bench.processes) == 2


@pytest.mark.parametrize("text", ["", "pa55word", "https://a:pa55@b", "amqps://a:pa55@b c", "amqps://"])
def test_what_is_no_address_of_a_broker_is_not_shown(text: str) -> None:
    with pytest.raises(AgentError, match="secret queues/ocr: no URL of a broker") as told:
        queue.environment(QUEUE, text)
    assert "pa55" not in str(told.value)
