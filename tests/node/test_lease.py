"""The lease alone protects checkpoints on EFS: without renewal the job is killed before it expires."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.bench import Bench
from tests.node.clocks import FakeClock
from tests.node.job_table import Attributes, JobTable, no_answer
from tests.node.metadata import MetadataServer
from tests.waiting import TIMEOUT_SECONDS
from userdata.agent.lease.fence import fenced
from userdata.agent.lease.holder import LeaseHolder
from userdata.agent.lease.renewal import STOP_AFTER_SECONDS, LeaseRenewer
from userdata.agent.lease.store import LEASE_SECONDS, DynamoLease
from userdata.agent.machine.errors import AgentError, LeaseLostError

SLOWEST = 42.0
"""Seconds of a DynamoDB call without a response: three attempts of 13 s, and the pauses between them."""


@pytest.fixture
def bench(tmp_path: Path, clock: FakeClock, metadata_server: MetadataServer) -> Iterator[Bench]:
    bench = Bench(tmp_path, clock, metadata_server)
    yield bench
    bench.close()


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
    outage = range(100, 125)
    started_at = clock.monotonic()
    lease_renewer = LeaseRenewer(
        lambda: silent() if int(clock.monotonic() - started_at) in outage else None, clock, LEASE_SECONDS
    )
    for _ in range(1200):
        clock.advance(0.5)
        lease_renewer.renew_if_due()


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
