"""Waiting for a job's results, and the outcome if they are not uploaded."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contracts import names
from tests.node.bench import Bench
from tests.node.jobs import write_notice
from userdata.agent.machine.errors import LeaseLostError


class Results:
    """Delivers at once, or says why not."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.problem = ""
        self.offered: list[float] = []
        self.delivered: list[tuple[list[str], float]] = []
        """The job's marks at that time, and the seconds that were left."""
        self.meanwhile: Callable[[], None] = lambda: None

    def offer(self, checkpoint: float) -> None:
        self.offered.append(checkpoint)

    def deliver(self, until: Callable[[], float], look_after: Callable[[], None]) -> str:
        self.meanwhile()
        look_after()
        self.delivered.append((list(self.bench.job.marks), until() - self.bench.clock.monotonic()))
        return self.problem


@pytest.fixture
def bench(bench: Bench) -> Bench:
    bench.results = Results(bench)
    return bench


def test_a_job_is_done_when_its_results_are_there(bench: Bench) -> None:
    assert bench.trainer("true").run() == "done"
    [(marks, seconds)] = bench.results.delivered
    assert marks == ["running"]
    assert seconds == 3600
    assert bench.job.marks == ["running", "done", "taken down"]


def test_a_job_fails_with_a_reason_if_its_results_are_not_uploaded(bench: Bench) -> None:
    bench.results.problem = "artifacts not uploaded to s3://results/: a: AccessDenied"
    assert bench.trainer("true").run() == "failed"
    assert bench.job.marks == ["running", "failed", "taken down"]
    assert bench.results.problem in bench.job.reasons
    assert bench.rung == [names.METRIC_JOB_FAILURES]


def test_what_a_failed_job_leaves_is_delivered_too(bench: Bench) -> None:
    assert bench.trainer("exit 3", restarts=0).run() == "failed"
    assert len(bench.results.delivered) == 1


def test_a_notice_during_the_delivery_leaves_the_rest_to_the_next_instance(bench: Bench) -> None:
    trainer = bench.trainer("true")
    bench.results.problem = "artifacts not uploaded to s3://results/: no time"
    bench.results.meanwhile = trainer.stop
    assert trainer.run() == "stopped"
    assert bench.job.marks == ["running"]


def test_at_a_notice_there_is_the_time_that_the_notice_leaves(bench: Bench) -> None:
    trainer = bench.trainer("trap 'exit 0' TERM; touch up; while :; do sleep .02; done")
    stopped_at: list[float] = []

    def take(seconds: float) -> None:
        if (bench.tmp / "up").exists() and not stopped_at:
            stopped_at.append(bench.clock.monotonic())
            write_notice(bench.tmp, bench.clock)
            trainer.stop()

    bench.clock.on_sleep = take
    assert trainer.run() == "stopped"
    [(_, seconds)] = bench.results.delivered
    assert seconds == pytest.approx(stopped_at[0] + 110.0 - bench.clock.monotonic())


def test_a_lost_lease_delivers_nothing_more(bench: Bench) -> None:
    def lost() -> None:
        raise LeaseLostError("taken over")

    bench.results.meanwhile = lost
    with pytest.raises(LeaseLostError):
        bench.trainer("true").run()
    assert bench.job.marks == ["running"]


def test_the_newest_checkpoint_is_offered_while_it_trains(bench: Bench) -> None:
    trainer = bench.trainer("touch $GPU_SPOT_CHECKPOINTS/1; while test ! -e stop; do sleep 0.02; done")

    def look(seconds: float) -> None:
        if any(bench.results.offered):
            (bench.tmp / "stop").touch()

    bench.clock.on_sleep = look
    assert trainer.run() == "done"
    assert bench.results.offered[-1] == 1  # new once
