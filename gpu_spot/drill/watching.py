"""Start a drill and watch it to its end, through injected looks and clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpu_spot.drill.course import DrillCourse
from gpu_spot.drill.experiment import DrillError, DrillExperiments
from gpu_spot.jobs.timeline import Story
from gpu_spot.status.seen import GroupSeen, StackSeen, phase_of
from lambdas.core.model import Market


@dataclass(slots=True)
class Drill:
    """One drill of one group; ``look`` returns the stack with this group alone, ``story`` that of a job."""

    experiments: DrillExperiments
    look: Callable[[], StackSeen]
    story: Callable[[str], Story]
    experiment: str = ""

    def plan(self) -> tuple[str, StackSeen]:
        """Return the template's id and the stack before; raise ``DrillError`` if now is no good time."""
        template, seen = self.experiments.template(), self.look()
        group = _only(seen)
        if group.trouble:
            raise DrillError(f"group {group.name!r}: {group.trouble}")
        if seen.alarms:
            rings = ", ".join(one.name for one in seen.alarms)
            raise DrillError(f"stack {seen.stack!r} needs a look first, these alarms ring: {rings}")
        if group.missing or any(phase_of(one) == "draining" for one in group.instances):
            raise DrillError(
                f"group {group.name!r} misses {group.missing} of {group.target}, or loses instances already: "
                "a drill begins with a whole group"
            )
        if seen.jobs and not any(job.standing.phase == "running" for job in seen.jobs):
            told = "; ".join(
                f"{job.seen.name} is {job.standing.phase}{job.standing.why and ': '}{job.standing.why}"
                for job in seen.jobs
            )
            raise DrillError(f"{told}: a drill begins with a job that runs")
        if not any(one.market is Market.SPOT for one in group.instances):
            raise DrillError(f"group {group.name!r} has no spot instance now, at least one is needed")
        return template, seen

    def start(self, template: str, seen: StackSeen) -> DrillCourse:
        """Start the experiment; ``seen`` is the stack just before."""
        course = DrillCourse(seen.groups[0].name, seen.now)
        course.see(_only(seen), seen.now, seen.jobs)
        self.experiment = self.experiments.start(template)
        return course

    def follow(self, course: DrillCourse) -> bool:
        """Look once more; tell whether to go on. Raises ``DrillError`` where FIS took nobody."""
        seen = self.look()
        course.see(_only(seen), seen.now, seen.jobs)
        state = self.experiments.state(self.experiment)
        if state.status in ("failed", "stopped", "cancelled") and not course.losses:
            raise DrillError(
                f"experiment {self.experiment} of group {course.group!r} has {state.status}: {state.reason}"
            )
        if not course.is_over:
            return True
        course.jobs.stories.update({name: self.story(name) for name in course.jobs.taken})
        return False


def _only(seen: StackSeen) -> GroupSeen:
    [group] = seen.groups
    return group
