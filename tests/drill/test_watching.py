"""Preconditions of a drill, and experiments that interrupt no instance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_spot.drill.experiment import DrillError, DrillExperiments
from gpu_spot.drill.watching import Drill
from gpu_spot.jobs.report import JobReport
from gpu_spot.jobs.status import job_status
from gpu_spot.status.snapshot import ActiveAlarm, DeclaredEntries, GroupSnapshot, StackSnapshot
from lambdas.core.model import PurchaseOption
from tests.drill.test_progress import WHOLE, instance
from tests.jobs.snapshots import job, row
from userdata.agent.cost.timeline import JobTimeline

TAGS = {"gpu-spot:stack": "dev", "gpu-spot:group": "inference"}


class Fis:
    """A stub of FIS: templates with these tags, and experiments in this state."""

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


def stack(group: GroupSnapshot, now: float = 0.0, alarms: tuple[ActiveAlarm, ...] = ()) -> StackSnapshot:
    return StackSnapshot("dev", "us-west-2", now, alarms, (group,), (), (), DeclaredEntries({}), 1)


def no_timeline(job: str) -> JobTimeline:
    raise AssertionError(f"timeline of {job} requested, allowed: only for interrupted jobs")


def drill(seen: StackSnapshot, fis: Fis | None = None) -> Drill:
    return Drill(DrillExperiments(fis or Fis(), "dev", "inference"), lambda: seen, no_timeline)


@pytest.mark.parametrize(
    ("snapshot", "error"),
    [
        (stack(replace(WHOLE, error="parameter inference/config is missing")), "config is missing"),
        (
            stack(WHOLE, alarms=(ActiveAlarm("inference-shortage", 0.0, ""),)),
            "active alarms: inference-shortage",
        ),
        (stack(replace(WHOLE, instances=WHOLE.instances[:1])), "misses 1 of 2"),
        (
            stack(replace(WHOLE, instances=(*WHOLE.instances, instance("c", deadline=9.0)))),
            "has draining instances",
        ),
        (
            stack(
                replace(
                    WHOLE,
                    instances=tuple(
                        replace(one, purchase_option=PurchaseOption.ON_DEMAND) for one in WHOLE.instances
                    ),
                )
            ),
            "has no Spot Instance to interrupt",
        ),
    ],
)
def test_a_drill_requires_a_complete_group_without_alarms(snapshot: StackSnapshot, error: str) -> None:
    with pytest.raises(DrillError, match=error):
        drill(snapshot).plan()


def test_a_drill_does_not_start_with_a_failed_job() -> None:
    failed = job(row=row(state="failed", reason="no GPU"))
    seen = replace(stack(WHOLE), jobs=(JobReport(failed, job_status(failed)),))
    with pytest.raises(DrillError, match=r"^resnet is failed: no GPU; a drill requires a running job"):
        drill(seen).plan()


def test_a_missing_template_names_the_setting() -> None:
    with pytest.raises(DrillError, match=r"set capacity\.drill in the stack file"):
        drill(stack(WHOLE), Fis(tags={**TAGS, "gpu-spot:group": "other"})).plan()


@pytest.mark.parametrize("status", ["failed", "stopped"])
def test_an_experiment_without_interruption_is_an_error(status: str) -> None:
    fis = Fis(status)
    pending_drill = drill(stack(WHOLE), fis)
    progress = pending_drill.start(*pending_drill.plan())
    assert fis.started == ["EXT1"]
    with pytest.raises(DrillError, match=f"EXP1 of group 'inference' has {status}: no target"):
        pending_drill.poll(progress)


def test_a_stopped_experiment_is_followed_if_it_interrupted_instances() -> None:
    interrupted = replace(WHOLE, instances=(instance("a", deadline=130.0), instance("b")))
    looks = iter([stack(WHOLE), stack(interrupted, 10.0)])
    pending_drill = Drill(
        DrillExperiments(Fis("stopped"), "dev", "inference"), lambda: next(looks), no_timeline
    )
    progress = pending_drill.start(*pending_drill.plan())
    assert pending_drill.poll(progress)
    assert set(progress.losses) == {"a"}
