"""A drill in words."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_spot.drill.course import DrillCourse
from gpu_spot.drill.training import JobLoss
from gpu_spot.text import counted, percent, span


def lines(course: DrillCourse) -> Iterator[str]:
    """Yield what a drill came to, a line each."""
    if not course.losses:
        yield f"nobody was taken from {course.group} within {span(course.seconds)}"
        return
    for one in course.losses.values():
        ended = "not gone yet" if one.gone is None else f"gone after {span(one.gone - course.started)}"
        noticed = course.started if one.noticed is None else one.noticed
        where = f"{one.instance} ({one.instance_type}, {one.zone})"
        yield f"{where}: notice after {span(noticed - course.started)}, {ended}"
    if course.made_good is None:
        yield f"not made good within {span(course.seconds)}: look at `gpu-spot status --group {course.group}`"
    else:
        yield f"made good after {span(course.made_good - course.started)}"
    yield (
        f"at least {course.least_serving} of {counted(course.target, 'worker slot')} served, "
        f"{percent(course.served, 2)} of the wanted time served, "
        f"{span(course.missing_seconds)} of a slot's time lost"
    )
    for loss in course.jobs.losses():
        yield _of_job(loss, course.started)


def _of_job(loss: JobLoss, started: float) -> str:
    again = f"{span(loss.lost_seconds)} of its work done again"
    if loss.lost_steps is not None:
        again += f", {counted(loss.lost_steps, 'step')}"
    if loss.went_on is None or loss.away_seconds is None:
        return f"{loss.job}: has not gone on; {again}: look at `gpu-spot jobs show {loss.job}`"
    at = "" if loss.step_after is None else f", seen at step {loss.step_after:,}"
    went_on = f"went on after {span(loss.went_on - started)}{at}"
    return f"{loss.job}: {went_on}; away for {span(loss.away_seconds)}, {again}"
