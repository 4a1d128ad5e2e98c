"""The effect of a drill on a training job, from job reports and the final timeline."""

from __future__ import annotations

from typing import Any

from contracts.jobs.attempt import JobAttempt
from gpu_spot.drill.progress import DrillProgress
from gpu_spot.drill.text import lines
from gpu_spot.drill.training import JobsProgress
from gpu_spot.jobs.report import JobReport, timeline_of
from gpu_spot.jobs.status import job_status
from gpu_spot.status.snapshot import GroupSnapshot
from lambdas.core.model import GroupRole, Instance, Pool, PurchaseOption
from tests.jobs.snapshots import NOW, holding, host, job, job_attempt, row, worker
from userdata.agent.cost.prices import PriceBook
from userdata.agent.cost.timeline import JobTimeline

START = NOW - 1000
PRICES = PriceBook(lambda _: None)
SAVED = job_attempt(1, "i-1", 5000, 880, notice_at=NOW - 990, cause="spot", ended=NOW - 875, end="stopped")
UNSAVED = job_attempt(
    1, "i-1", 5000, 880, notice_at=NOW - 990, cause="spot", stopped=0.0, checkpoint=NOW - 1180
)
BEFORE = job(row=holding("i-1"), workers=(worker("i-1"),), hosts=(host("i-1"),), steps={"i-1": (50, 90)})
BETWEEN = job(row=row(), hosts=(host("i-2"),))


def report(**more: Any) -> JobReport:
    snapshot = job(**more)
    return JobReport(snapshot, job_status(snapshot))


def after(**more: Any) -> JobReport:
    return report(row=holding("i-2"), workers=(worker("i-2"),), hosts=(host("i-2"),), **more)


def after_loss() -> JobsProgress:
    progress = JobsProgress()
    progress.update([JobReport(BEFORE, job_status(BEFORE))], ())
    progress.update([JobReport(BETWEEN, job_status(BETWEEN))], ["i-1"])
    return progress


def timeline(first: JobAttempt, resumed: float) -> JobTimeline:
    second = job_attempt(2, "i-2", 600, 5, stopped=0.0, resumed=resumed)
    return timeline_of(job(row=row(token=2), attempts=(first, second)), PRICES)


def test_a_job_that_saves_at_the_notice_loses_time_and_no_steps() -> None:
    progress = after_loss()
    assert not progress.is_finished
    progress.update([after(steps={"i-2": (51, 90)})], ["i-1"])
    assert progress.is_finished
    progress.timelines["resnet"] = timeline(SAVED, NOW - 880)
    [loss] = progress.losses()
    assert loss.to_json(START) == {
        "job": "resnet",
        "went_on_after": 400.0,
        "away_seconds": 280.0,
        "lost_seconds": 0.0,
        "lost_steps": 0,
        "step_before": 50,
        "step_after": 51,
    }


def test_a_job_that_does_not_save_repeats_the_work_since_its_checkpoint() -> None:
    progress = after_loss()
    progress.update([after(steps={"i-2": (40, 90)})], ["i-1"])
    progress.timelines["resnet"] = timeline(UNSAVED, NOW - 1180)
    [loss] = progress.losses()
    assert (loss.lost_steps, loss.lost_seconds) == (10, 300)


def test_a_drill_waits_for_a_step_of_the_successor_if_the_job_reports_steps() -> None:
    progress = after_loss()
    progress.update([after()], ["i-1"])
    assert not progress.is_finished
    silent = JobsProgress()
    silent.update([report(row=holding("i-1"), workers=(worker("i-1"),), hosts=(host("i-1"),))], ())
    silent.update([after()], ["i-1"])
    assert silent.is_finished
    silent.timelines["resnet"] = timeline(SAVED, NOW - 880)
    assert silent.losses()[0].lost_steps is None


def test_losses_of_interrupted_successors_are_added() -> None:
    progress = after_loss()
    progress.update([after(steps={"i-2": (45, 90)})], ["i-1"])
    progress.update([after(steps={"i-2": (48, 90)})], ["i-1", "i-2"])
    assert not progress.is_finished
    third = {"row": holding("i-3"), "workers": (worker("i-3"),), "hosts": (host("i-3"),)}
    progress.update([report(**third, steps={"i-3": (41, 90)})], ["i-1", "i-2"])
    assert progress.is_finished
    second = job_attempt(2, "i-2", 600, 400, stopped=0.0, resumed=NOW - 1180)
    last = job_attempt(3, "i-3", 100, 5, stopped=0.0, resumed=NOW - 500)
    result = timeline_of(job(row=row(token=3), attempts=(UNSAVED, second, last)), PRICES)
    progress.timelines["resnet"] = result
    [loss] = progress.losses()
    assert (loss.lost_seconds, loss.away_seconds, loss.lost_steps) == (300 + 100, 280 + 300, 9)
    assert loss.resumed_at == NOW - 100


def test_a_drill_does_not_wait_for_a_finished_job() -> None:
    progress = after_loss()
    done = job(row=row(state="done"))
    progress.update([JobReport(done, job_status(done))], ["i-1"])
    assert progress.is_finished


def test_a_job_without_interruption_is_not_reported() -> None:
    progress = after_loss()
    other = job(name="other", row=holding("i-9"), workers=(worker("i-9"),), hosts=(host("i-9"),))
    progress.update([JobReport(other, job_status(other))], ["i-1"])
    assert progress.interrupted_jobs == ("resnet",)


def test_a_drill_ends_when_the_job_has_resumed() -> None:
    def seen(name: str, deadline: float | None = None) -> GroupSnapshot:
        pool = Pool("g6.xlarge", "us-west-2a")
        one = Instance(name, pool, PurchaseOption.SPOT, GroupRole.PRIMARY, 0.0, 10.0, deadline)
        return GroupSnapshot("resnet", 1, instances=(one,))

    progress = DrillProgress("resnet", START)
    progress.update(seen("i-1"), START, [JobReport(BEFORE, job_status(BEFORE))])
    progress.update(seen("i-1", START + 130), START + 10, [JobReport(BEFORE, job_status(BEFORE))])
    progress.update(seen("i-2"), START + 300, [JobReport(BETWEEN, job_status(BETWEEN))])
    assert not progress.is_finished
    assert list(lines(progress))[-1] == (
        "resnet: has not resumed; 0:00 of work lost: see `gpu-spot jobs show resnet`"
    )
    progress.update(seen("i-2"), START + 410, [after(steps={"i-2": (51, 90)})])
    assert progress.is_finished
    progress.jobs.timelines["resnet"] = timeline(SAVED, NOW - 880)
    assert list(lines(progress))[-1] == (
        "resnet: resumed after 6:40 at step 51; downtime 4:40, 0:00 of work lost, 0 steps"
    )
