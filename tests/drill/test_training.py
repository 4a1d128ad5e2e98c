"""What a drill cost a training job, from looks at it and its story in the end."""

from __future__ import annotations

from typing import Any

from contracts.jobs.attempt import JobAttempt
from gpu_spot.drill.course import DrillCourse
from gpu_spot.drill.text import lines
from gpu_spot.drill.training import JobsCourse
from gpu_spot.jobs.account import JobAccount
from gpu_spot.jobs.money import PriceBook
from gpu_spot.jobs.status import standing
from gpu_spot.jobs.timeline import Story, tell
from gpu_spot.status.seen import GroupSeen
from lambdas.core.model import Instance, Market, Pool, Side
from tests.jobs.seen import NOW, holding, host, job, row, stint, worker

START = NOW - 1000
PRICES = PriceBook(lambda _: None)
SAVED = stint(1, "i-1", 5000, 880, told=NOW - 990, cause="spot", ended=NOW - 875, end="stopped")
UNSAVED = stint(1, "i-1", 5000, 880, told=NOW - 990, cause="spot", stopped=0.0, checkpoint=NOW - 1180)
BEFORE = job(row=holding("i-1"), workers=(worker("i-1"),), hosts=(host("i-1"),), steps={"i-1": (50, 90)})
BETWEEN = job(row=row(), hosts=(host("i-2"),))


def account(**more: Any) -> JobAccount:
    seen = job(**more)
    return JobAccount(seen, standing(seen))


def after(**more: Any) -> JobAccount:
    return account(row=holding("i-2"), workers=(worker("i-2"),), hosts=(host("i-2"),), **more)


def taken() -> JobsCourse:
    course = JobsCourse()
    course.see([JobAccount(BEFORE, standing(BEFORE))], ())
    course.see([JobAccount(BETWEEN, standing(BETWEEN))], ["i-1"])
    return course


def story(first: JobAttempt, resumed: float) -> Story:
    second = stint(2, "i-2", 600, 5, stopped=0.0, resumed=resumed)
    return tell(job(row=row(token=2), stints=(first, second)), PRICES)


def test_a_job_that_saves_at_the_notice_loses_time_and_no_steps() -> None:
    course = taken()
    assert not course.is_over
    course.see([after(steps={"i-2": (51, 90)})], ["i-1"])
    assert course.is_over
    course.stories["resnet"] = story(SAVED, NOW - 880)
    [loss] = course.losses()
    assert loss.to_json(START) == {
        "job": "resnet",
        "went_on_after": 400.0,
        "away_seconds": 280.0,
        "lost_seconds": 0.0,
        "lost_steps": 0,
        "step_before": 50,
        "step_after": 51,
    }


def test_one_that_does_not_save_does_the_work_since_its_checkpoint_again() -> None:
    course = taken()
    course.see([after(steps={"i-2": (40, 90)})], ["i-1"])
    course.stories["resnet"] = story(UNSAVED, NOW - 1180)
    [loss] = course.losses()
    assert (loss.lost_steps, loss.lost_seconds) == (10, 300)


def test_it_is_watched_until_its_successor_tells_a_step_if_it_ever_told_one() -> None:
    course = taken()
    course.see([after()], ["i-1"])
    assert not course.is_over
    silent = JobsCourse()
    silent.see([account(row=holding("i-1"), workers=(worker("i-1"),), hosts=(host("i-1"),))], ())
    silent.see([after()], ["i-1"])
    assert silent.is_over
    silent.stories["resnet"] = story(SAVED, NOW - 880)
    assert silent.losses()[0].lost_steps is None


def test_a_successor_that_is_taken_too_counts_with_it() -> None:
    course = taken()
    course.see([after(steps={"i-2": (45, 90)})], ["i-1"])
    course.see([after(steps={"i-2": (48, 90)})], ["i-1", "i-2"])
    assert not course.is_over
    third = {"row": holding("i-3"), "workers": (worker("i-3"),), "hosts": (host("i-3"),)}
    course.see([account(**third, steps={"i-3": (41, 90)})], ["i-1", "i-2"])
    assert course.is_over
    second = stint(2, "i-2", 600, 400, stopped=0.0, resumed=NOW - 1180)
    last = stint(3, "i-3", 100, 5, stopped=0.0, resumed=NOW - 500)
    told = tell(job(row=row(token=3), stints=(UNSAVED, second, last)), PRICES)
    course.stories["resnet"] = told
    [loss] = course.losses()
    assert (loss.lost_seconds, loss.away_seconds, loss.lost_steps) == (300 + 100, 280 + 300, 9)
    assert loss.went_on == NOW - 100


def test_a_job_that_ends_meanwhile_is_waited_for_no_longer() -> None:
    course = taken()
    done = job(row=row(state="done"))
    course.see([JobAccount(done, standing(done))], ["i-1"])
    assert course.is_over


def test_a_job_that_lost_nobody_is_not_told_of() -> None:
    course = taken()
    other = job(name="other", row=holding("i-9"), workers=(worker("i-9"),), hosts=(host("i-9"),))
    course.see([JobAccount(other, standing(other))], ["i-1"])
    assert course.taken == ("resnet",)


def test_a_drill_is_over_when_the_job_goes_on_and_says_so() -> None:
    def seen(name: str, deadline: float | None = None) -> GroupSeen:
        pool = Pool("g6.xlarge", "us-west-2a")
        one = Instance(name, pool, Market.SPOT, Side.PRIMARY, 0.0, 10.0, deadline)
        return GroupSeen("resnet", 1, instances=(one,))

    course = DrillCourse("resnet", START)
    course.see(seen("i-1"), START, [JobAccount(BEFORE, standing(BEFORE))])
    course.see(seen("i-1", START + 130), START + 10, [JobAccount(BEFORE, standing(BEFORE))])
    course.see(seen("i-2"), START + 300, [JobAccount(BETWEEN, standing(BETWEEN))])
    assert not course.is_over
    assert list(lines(course))[-1] == (
        "resnet: has not gone on; 0:00 of its work done again: look at `gpu-spot jobs show resnet`"
    )
    course.see(seen("i-2"), START + 410, [after(steps={"i-2": (51, 90)})])
    assert course.is_over
    course.jobs.stories["resnet"] = story(SAVED, NOW - 880)
    assert list(lines(course))[-1] == (
        "resnet: went on after 6:40, seen at step 51; away for 4:40, 0:00 of its work done again, 0 steps"
    )
