"""When a drill begins, and how one ends in which nobody is taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_spot.drill.experiment import DrillError, DrillExperiments
from gpu_spot.drill.watching import Drill
from gpu_spot.jobs.account import JobAccount
from gpu_spot.jobs.status import standing
from gpu_spot.jobs.timeline import Story
from gpu_spot.status.seen import AlarmSeen, DeclaredEntries, GroupSeen, StackSeen
from lambdas.core.model import Market
from tests.drill.test_course import WHOLE, instance
from tests.jobs.seen import job, row

TAGS = {"gpu-spot:stack": "dev", "gpu-spot:group": "inference"}


class Fis:
    """What FIS answers: templates with these tags, and experiments in this state."""

    def __init__(self, status: str = "running", tags: dict[str, str] = TAGS) -> None:
        self.status, self.tags = status, tags
        self.started: list[str] = []

    def get_paginator(self, _: str) -> Fis:
        return self

    def paginate(self) -> list[dict[str, Any]]:
        return [{"experimentTemplates": [{"id": "other"}, {"id": "EXT1", "tags": self.tags}]}]

    def start_experiment(self, **given: Any) -> dict[str, Any]:
        self.started.append(given["experimentTemplateId"])
        return {"experiment": {"id": "EXP1"}}

    def get_experiment(self, id: str) -> dict[str, Any]:  # noqa: A002
        return {"experiment": {"state": {"status": self.status, "reason": "no target"}}}


def stack(group: GroupSeen, now: float = 0.0, alarms: tuple[AlarmSeen, ...] = ()) -> StackSeen:
    return StackSeen("dev", "us-west-2", now, alarms, (group,), (), (), DeclaredEntries({}), 1)


def no_story(job: str) -> Story:
    raise AssertionError(f"asked for the story of {job}, allowed: of a job that lost an instance")


def drill(seen: StackSeen, fis: Fis | None = None) -> Drill:
    return Drill(DrillExperiments(fis or Fis(), "dev", "inference"), lambda: seen, no_story)


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (stack(replace(WHOLE, trouble="parameter inference/config is missing")), "config is missing"),
        (stack(WHOLE, alarms=(AlarmSeen("inference-shortage", 0.0, ""),)), "alarms ring: inference-shortage"),
        (stack(replace(WHOLE, instances=WHOLE.instances[:1])), "misses 1 of 2"),
        (stack(replace(WHOLE, instances=(*WHOLE.instances, instance("c", deadline=9.0)))), "loses instances"),
        (
            stack(
                replace(
                    WHOLE,
                    instances=tuple(replace(one, market=Market.ON_DEMAND) for one in WHOLE.instances),
                )
            ),
            "has no spot instance now",
        ),
    ],
)
def test_a_drill_begins_with_a_whole_group_in_peace(seen: StackSeen, told: str) -> None:
    with pytest.raises(DrillError, match=told):
        drill(seen).plan()


def test_a_drill_does_not_begin_with_a_job_that_has_failed() -> None:
    failed = job(row=row(state="failed", reason="no GPU"))
    seen = replace(stack(WHOLE), jobs=(JobAccount(failed, standing(failed)),))
    with pytest.raises(DrillError, match=r"^resnet is failed: no GPU: a drill begins with a job that runs"):
        drill(seen).plan()


def test_a_group_without_a_template_says_what_to_write() -> None:
    with pytest.raises(DrillError, match="allowed: after `up` with capacity"):
        drill(stack(WHOLE), Fis(tags={**TAGS, "gpu-spot:group": "other"})).plan()


@pytest.mark.parametrize("status", ["failed", "stopped"])
def test_an_experiment_that_took_nobody_is_an_error_and_not_a_report(status: str) -> None:
    fis = Fis(status)
    begun = drill(stack(WHOLE), fis)
    course = begun.start(*begun.plan())
    assert fis.started == ["EXT1"]
    with pytest.raises(DrillError, match=f"EXP1 of group 'inference' has {status}: no target"):
        begun.follow(course)


def test_whom_it_took_is_watched_even_if_it_was_stopped() -> None:
    doomed = replace(WHOLE, instances=(instance("a", deadline=130.0), instance("b")))
    looks = iter([stack(WHOLE), stack(doomed, 10.0)])
    begun = Drill(DrillExperiments(Fis("stopped"), "dev", "inference"), lambda: next(looks), no_story)
    course = begun.start(*begun.plan())
    assert begun.follow(course)
    assert set(course.losses) == {"a"}
