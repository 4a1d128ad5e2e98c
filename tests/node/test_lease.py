"""The lease alone protects checkpoints on EFS: without renewal the job is killed before it expires."""

from __future__ import annotations

import random
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.node import configs
from tests.node.bench import Bench
from tests.node.configs import FakeClock
from tests.node.job_table import Attributes, JobTable, no_answer
from tests.node.jobs import REGION, MakeNode, job, row, volumes, write_notice
from tests.waiting import TIMEOUT_SECONDS, wait_until
from userdata.agent import tasks
from userdata.agent.lease.fence import fenced
from userdata.agent.lease.holder import LeaseHolder
from userdata.agent.lease.renewal import STOP_AFTER_SECONDS, LeaseRenewer
from userdata.agent.lease.store import LEASE_SECONDS, DynamoLease
from userdata.agent.machine.errors import (
    AgentError,
    CommandError,
    LeaseLostError,
    RefusedError,
    WorkCancelledError,
)
from userdata.agent.machine.host import SystemHost
from userdata.agent.tasks import job as job_tasks

SLOWEST = 42.0
"""Seconds of a DynamoDB call without a response: three attempts of 13 s, and the pauses between them."""


def silent() -> None:
    raise AgentError("job table jobs, job resnet: ReadTimeoutError")


def test_a_job_without_renewals_is_stopped_in_time_and_killed_before_the_lease_expires(
    clock: FakeClock,
) -> None:
    answers = [True]
    lease_renewer = LeaseRenewer(lambda: None if answers[0] else silent(), clock, LEASE_SECONDS)
    lease_renewer.renew_if_due()
    started_at, answers[0] = clock.monotonic(), False
    with pytest.raises(LeaseLostError, match="not renewed for 6"):  # noqa: PT012 - the loop is what raises
        while True:
            clock.advance(0.5)
            lease_renewer.renew_if_due()
    assert STOP_AFTER_SECONDS <= clock.monotonic() - started_at < STOP_AFTER_SECONDS + 6
    assert 40 < lease_renewer.grace_seconds <= LEASE_SECONDS - STOP_AFTER_SECONDS - 10
    assert started_at + LEASE_SECONDS - 10 < lease_renewer.fence_at < started_at + LEASE_SECONDS


def test_a_renewal_that_fails_for_half_a_minute_stops_nothing(clock: FakeClock) -> None:
    started_at, tried = clock.monotonic(), list[float]()

    def renew() -> None:
        tried.append(clock.monotonic() - started_at)
        if 100 <= tried[-1] < 125:
            silent()

    lease_renewer = LeaseRenewer(renew, clock, LEASE_SECONDS)
    for _ in range(1200):
        clock.advance(0.5)
        lease_renewer.renew_if_due()
    in_outage = [at for at in tried if 100 <= at < 130]
    assert {later - sooner for sooner, later in pairwise(in_outage)} == {5.0}


def test_with_an_attached_volume_an_hour_without_the_table_stops_nothing(clock: FakeClock) -> None:
    lease_renewer = LeaseRenewer(silent, clock)
    for _ in range(7200):
        clock.advance(0.5)
        lease_renewer.renew_if_due()
    assert lease_renewer.grace_seconds == 60.0
    assert lease_renewer.fence_at == float("inf")


def test_what_another_has_taken_is_left_at_once(clock: FakeClock) -> None:
    def lost() -> None:
        raise LeaseLostError("taken over")

    lease_renewer = LeaseRenewer(lost, clock, LEASE_SECONDS)
    with pytest.raises(LeaseLostError):
        lease_renewer.renew_if_due()
    assert lease_renewer.grace_seconds == 0.0
    assert clock.monotonic() < lease_renewer.fence_at < clock.monotonic() + 10


def test_a_job_that_does_not_listen_is_dead_before_its_lease_ends(bench: Bench) -> None:
    answered: list[float] = []

    def renew() -> None:
        if answered and bench.processes:
            silent()
        answered.append(bench.clock.monotonic())

    deaf = f"trap '' TERM; touch {bench.tmp}/up; while true; do sleep .05; done"
    with pytest.raises(LeaseLostError):
        bench.trainer(deaf, renew, lasts=LEASE_SECONDS).run()
    assert bench.processes[0].poll() is not None
    assert bench.clock.monotonic() - answered[-1] < LEASE_SECONDS


@pytest.mark.parametrize("seed", range(60))
def test_no_instance_works_once_another_has_the_lease(seed: int) -> None:
    """An instance that is cut off from the table now and then, whose calls take long, and its successor."""
    chance, clock, item = random.Random(seed), FakeClock(), Attributes()
    cut_off = False

    def store(instance: str, *, mine: bool) -> DynamoLease:
        def call(operation: str, effect: Any) -> Any:
            if not (mine and cut_off):
                return effect()
            clock.advance(chance.uniform(0.0, SLOWEST))
            if chance.random() < 0.2:
                effect()  # made, and the response is lost
            raise no_answer()

        table: Any = JobTable(item, call)
        return DynamoLease(table, "jobs", "resnet", instance, clock)

    holder, successor = store("i-holder", mine=True), store("i-next", mine=False)
    token = LeaseHolder(holder, clock).acquire().token
    lease_renewer = LeaseRenewer(lambda: holder.renew(token), clock, LEASE_SECONDS)
    dead_at: float | None = None
    for _ in range(4000):
        clock.advance(chance.uniform(0.1, 1.0))
        cut_off = chance.random() < (0.999 if cut_off else 0.01)
        if dead_at is None:
            try:
                lease_renewer.renew_if_due()
            except LeaseLostError:
                dead_at = clock.monotonic() + lease_renewer.grace_seconds  # it saves to the last moment
            if (
                clock.monotonic() >= lease_renewer.fence_at
            ):  # the supervisor hung: the fence has struck meanwhile
                dead_at = min(lease_renewer.fence_at, dead_at or lease_renewer.fence_at)
        if successor.acquire() is not None:
            assert dead_at is not None
            assert dead_at <= clock.monotonic()
            return
    pytest.fail("the successor never had the lease")


def test_the_fence_strikes_once_the_work_outlives_its_lease_and_not_before(clock: FakeClock) -> None:
    struck = threading.Event()
    end = clock.monotonic() + 10
    with fenced(lambda: end, clock, struck.set, 0.001):
        assert not struck.wait(0.05)
        clock.advance(10)
        assert struck.wait(TIMEOUT_SECONDS)
    again = threading.Event()
    with fenced(lambda: clock.monotonic() + 1, clock, again.set, 0.001):
        pass
    clock.advance(1e6)
    assert not again.is_set()
    assert "fence" not in {thread.name for thread in threading.enumerate()}


@pytest.fixture
def host(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> SystemHost:
    """A host on which 20 s pass at each look after a command, of which there is one each 10 ms."""
    monkeypatch.setattr("userdata.agent.machine.host._POLL_INTERVAL_SECONDS", 0.01)
    return SystemHost()


def slow(bench: Bench, seconds: float) -> None:
    """Make the preparation a command that lasts so long in simulated time."""
    end = bench.clock.monotonic() + seconds
    inner = bench.heartbeats.send

    def send(slots: tuple[int, ...], **more: Any) -> None:
        inner(slots, **more)
        if any(one[2] == "ready" for one in bench.registry.heartbeats):
            (bench.tmp / "seen").touch()
        bench.clock.advance(20.0)
        if bench.clock.monotonic() > end:
            (bench.tmp / "fetched").touch()

    bench.heartbeats.send = send  # type: ignore[method-assign,assignment]
    command = f"echo $$ >{bench.tmp}/pid; until test -e {bench.tmp}/fetched; do sleep .01; done"

    def make_ready() -> None:
        bench.host.run(["sh", "-c", command], 60)

    bench.make_ready = make_ready


def test_a_fetch_of_an_hour_loses_no_lease(bench: Bench, host: SystemHost) -> None:
    bench.host = host
    renewals: list[float] = []
    slow(bench, 3600.0)
    command = f"until test -e {bench.tmp}/seen; do sleep .01; done"
    assert bench.trainer(command, lambda: renewals.append(bench.clock.monotonic())).run() == "done"
    assert renewals[-1] - renewals[0] > 3500.0
    assert max(b - a for a, b in pairwise(renewals)) < LEASE_SECONDS / 2
    assert {heartbeat[2] for heartbeat in bench.registry.heartbeats} == {"waiting", "ready"}


def test_a_lease_that_is_lost_meanwhile_ends_the_fetch_and_starts_nothing(
    bench: Bench, host: SystemHost
) -> None:
    bench.host = host
    slow(bench, 1e9)
    end = bench.clock.monotonic() + 300.0

    def renew() -> None:
        if bench.clock.monotonic() > end:
            raise LeaseLostError("taken over")

    with pytest.raises(LeaseLostError):
        bench.trainer("true", renew).run()
    assert bench.starts == []
    assert not Path(f"/proc/{(bench.tmp / 'pid').read_text().strip()}").exists()


def test_a_lease_that_is_lost_right_after_the_fetch_starts_nothing(bench: Bench) -> None:
    fetched: list[int] = []

    def renew() -> None:
        if fetched:
            raise LeaseLostError("taken over")

    def make_ready() -> None:
        fetched.append(1)
        bench.clock.advance(100.0)

    bench.make_ready = make_ready
    with pytest.raises(LeaseLostError):
        bench.trainer("true", renew).run()
    assert bench.starts == []


def test_a_notice_ends_the_fetch_and_nothing_is_counted(bench: Bench, host: SystemHost) -> None:
    bench.host = host
    slow(bench, 1e9)
    trainer = bench.trainer("true")
    inner = bench.heartbeats.send

    def send(slots: tuple[int, ...], **more: Any) -> None:
        inner(slots, **more)
        if bench.clock.monotonic() > 2000.0:
            write_notice(bench.tmp, bench.clock)
            trainer.stop()

    bench.heartbeats.send = send  # type: ignore[method-assign,assignment]
    assert trainer.run() == "stopped"
    assert (bench.starts, bench.looks.diagnoses, bench.job.marks) == ([], 0, ["running"])


def test_a_renewal_is_due_each_half_minute_from_the_first_moment_on(clock: FakeClock) -> None:
    renewals: list[float] = []
    lease_renewer = LeaseRenewer(lambda: renewals.append(clock.monotonic()), clock)
    for _ in range(240):
        lease_renewer.renew_if_due()
        clock.advance(0.5)
    assert [round(at - renewals[0]) for at in renewals] == [0, 30, 60, 90]
    LeaseRenewer(None, clock).renew_if_due()


def test_what_attends_a_command_sees_it_from_the_start_and_may_end_it(
    host: SystemHost, tmp_path: Path
) -> None:
    looks: list[float] = []
    enough = [10_000]

    def attend() -> None:
        looks.append(time.monotonic())
        if len(looks) >= enough[0]:
            raise WorkCancelledError("enough")

    deaf = f"trap '' TERM; (sleep 60; touch {tmp_path}/late) & echo $! >{tmp_path}/pid; wait"
    with host.polling(attend):
        assert host.run(["cat"], 60, "said") == "said"
        assert looks
        enough[0] = len(looks) + 30
        with pytest.raises(WorkCancelledError):
            host.run(["sh", "-c", deaf], 60)
    assert len(looks) == enough[0]
    assert host.run(["echo", "free"], 60) == "free\n"
    assert len(looks) == enough[0]
    child = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")

    def is_dead() -> bool:
        try:
            return " Z " in child.read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True

    # On a busy machine SIGKILL takes a moment; without it the child sleeps for 60 s.
    wait_until(is_dead, 10)


def test_long_output_is_whole_whoever_attends(host: SystemHost) -> None:
    with host.polling(lambda: None):
        much = "for n in 1 2 3 4 5; do head -c 200000 /dev/zero | tr '\\0' x; sleep .03; done"
        text = host.run(["sh", "-c", much], 60)
    assert len(text) == 1_000_000


def test_a_command_that_fails_says_all_that_it_said(host: SystemHost) -> None:
    with pytest.raises(CommandError, match="sh: exit 3: last") as caught:
        host.run(["sh", "-c", "echo first >&2; echo last >&2; exit 3"], 60)
    assert caught.value.stderr == "first\nlast\n"
    with pytest.raises(AgentError, match="No such file"):
        host.run(["/none"], 60)


@pytest.fixture
def held(make_node: MakeNode) -> tasks.Node:
    """An instance that has the job's volume."""
    made = make_node("a", "holder")
    tasks.volume(made, "up")
    made.heartbeat_sender().deregister(0)
    return made


def test_a_waiting_instance_reports_since_when(
    held: tasks.Node, clock: FakeClock, make_node: MakeNode
) -> None:
    successor = make_node("b", "successor")
    began, seen = clock.wall(), []

    def watch(seconds: float) -> None:
        if found := row():
            seen.append((found["state"], int(found["since"]), clock.wall() - int(found["heartbeat"])))
        if clock.wall() - began > 60 and "holder" in job():
            clock.on_sleep = lambda seconds: None
            tasks.volume(held, "down")
            clock.on_sleep = watch

    clock.on_sleep = watch
    assert tasks.volume(successor, "up") == 0
    assert job()["holder"]["S"] == successor.identity.instance
    assert {(state, since) for state, since, _ in seen} == {("waiting", int(began))}
    assert max(age for _, _, age in seen) <= successor.config.heartbeat_seconds + 5
    assert clock.wall() - began > 60


def test_a_successor_that_is_taken_leaves_the_lease_alone_and_its_notice_in_the_registry(
    held: tasks.Node, aws: Any, clock: FakeClock, tmp_path: Path, make_node: MakeNode
) -> None:
    successor = make_node("b", "successor")
    deadlines = []

    def taken(seconds: float) -> None:
        clock.on_sleep = lambda seconds: None
        deadlines.append(write_notice(successor.directory, clock))
        tasks.volume(held, "down")

    clock.on_sleep = taken
    assert tasks.volume(successor, "up") == 0
    assert "holder" not in job()
    assert not (successor.directory / "lease.json").exists()
    found = row()
    assert found
    assert (found["state"], int(found["deadline"])) == ("waiting", int(deadlines[0]))
    assert volumes(aws) == [(f"{REGION}a", "available", "live")]
    assert tasks.run(successor) == 0  # systemd starts it next: it does nothing, either


def test_a_job_that_ended_meanwhile_is_not_brought_here(
    held: tasks.Node, aws: Any, clock: FakeClock, make_node: MakeNode
) -> None:
    successor = make_node("b", "successor")

    def ends(seconds: float) -> None:
        clock.on_sleep = lambda seconds: None
        job_tasks.jobs(held).mark("done")
        tasks.volume(held, "down")

    clock.on_sleep = ends
    assert tasks.volume(successor, "up") == 0
    assert "holder" not in job()
    assert row() is None
    assert volumes(aws) == [(f"{REGION}a", "available", "live")]


def test_a_stopped_volume_up_releases_lease_and_volume(
    held: tasks.Node, aws: Any, make_node: MakeNode
) -> None:
    tasks.volume(held, "down")
    successor = make_node("a", "successor")
    successor.host.formatted = held.host.formatted
    handlers: list[Any] = []
    successor.on_sigterm = handlers.append
    make = successor.host.mount

    def mount(device: str, path: Path) -> None:
        make(device, path)
        handlers[0]()

    successor.host.mount = mount  # type: ignore[method-assign]
    assert tasks.volume(successor, "up") == 0
    assert volumes(aws) == [(f"{REGION}a", "available", "live")]
    assert successor.host.mounted(successor.data) is None
    assert "holder" not in job()
    assert row() is None


def test_what_only_a_person_can_mend_does_not_stand_by(
    held: tasks.Node, aws: Any, make_node: MakeNode
) -> None:
    tasks.volume(held, "down")
    aws.create_volume(
        AvailabilityZone=f"{REGION}a",
        Size=1,
        TagSpecifications=[
            {
                "ResourceType": "volume",
                "Tags": [
                    {"Key": "Name", "Value": "DL-datasets-checkpoints"},
                    {"Key": "gpu-spot:stack", "Value": "dev"},
                    {"Key": "gpu-spot:job", "Value": "resnet"},
                ],
            }
        ],
    )
    successor = make_node("a", "successor")
    with pytest.raises(RefusedError, match="was not created by the agent"):
        tasks.volume(successor, "up")
    assert row() is None
    assert job()["state"] == {"S": "failed"}
    assert "was not created by the agent" in job()["reason"]["S"]
    parameter = "/gpu-spot/dev/groups/resnet/finished"
    ended = boto3.client("ssm", region_name=REGION).get_parameter(Name=parameter)["Parameter"]["Value"]
    assert ended == configs.REVISION  # so the controller removes the capacity


def test_a_registry_that_fails_stops_no_move(aws: Any, make_node: MakeNode) -> None:
    boto3.client("dynamodb", region_name=REGION).delete_table(TableName="registry")
    made = make_node()
    assert tasks.volume(made, "up") == 0
    assert volumes(aws) == [(f"{REGION}a", "in-use", "live")]


def test_a_run_that_finds_a_notice_starts_nothing_and_gives_the_volume_back(
    held: tasks.Node, aws: Any, clock: FakeClock
) -> None:
    write_notice(held.directory, clock)
    assert tasks.run(held) == 0
    assert volumes(aws) == [(f"{REGION}a", "available", "live")]
    assert "holder" not in job()
    assert "state" not in job()


def test_a_run_stopped_before_training_releases_the_volume(
    held: tasks.Node, aws: Any, clock: FakeClock
) -> None:
    handlers: list[Any] = []
    held.on_sigterm = handlers.append
    held.spawn = lambda *_: pytest.fail("nothing may start")

    def ran(argv: Any, timeout: float = 60, stdin: str = "", environment: Any = None) -> str:
        handlers[-1]()  # in the middle of the checkout
        return configs.REVISION

    held.host.run = ran  # type: ignore[method-assign]
    assert tasks.run(held) == 0
    assert volumes(aws) == [(f"{REGION}a", "available", "live")]
