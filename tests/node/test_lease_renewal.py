"""The lease lives as long as its holder works, however long that takes: real commands, simulated time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.node.bench import Bench
from tests.node.clocks import FakeClock
from tests.node.metadata import MetadataServer
from tests.waiting import wait_until
from userdata.agent.lease.renewal import LeaseRenewer
from userdata.agent.lease.store import LEASE_SECONDS
from userdata.agent.machine.errors import AgentError, CommandError, LeaseLostError, WorkCancelledError
from userdata.agent.machine.host import SystemHost
from userdata.agent.work import notice


@pytest.fixture
def bench(tmp_path: Path, clock: FakeClock, metadata_server: MetadataServer) -> Iterator[Bench]:
    bench = Bench(tmp_path, clock, metadata_server)
    yield bench
    bench.close()


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
        bench.host.run(["sh", "-c", command])

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
            notice.write(bench.tmp, notice.from_lifecycle("Terminated", bench.clock.wall(), 120.0))
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
        assert host.run(["cat"], "said") == "said"
        assert looks
        enough[0] = len(looks) + 30
        with pytest.raises(WorkCancelledError):
            host.run(["sh", "-c", deaf])
    assert len(looks) == enough[0]
    assert host.run(["echo", "free"]) == "free\n"
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
        text = host.run(["sh", "-c", much])
    assert len(text) == 1_000_000


def test_a_command_that_fails_says_all_that_it_said(host: SystemHost) -> None:
    with pytest.raises(CommandError, match="sh: exit 3: last") as caught:
        host.run(["sh", "-c", "echo first >&2; echo last >&2; exit 3"])
    assert caught.value.stderr == "first\nlast\n"
    with pytest.raises(AgentError, match="No such file"):
        host.run(["/none"])
