"""Starts a drill and polls it until it ends, with injected readers and clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpu_spot.drill.experiment import DrillError, DrillExperiments
from gpu_spot.drill.progress import DrillProgress
from gpu_spot.status.snapshot import GroupSnapshot, StackSnapshot, phase_of
from lambdas.core.model import PurchaseOption
from userdata.agent.cost.timeline import JobTimeline


@dataclass(slots=True)
class Drill:
    """A drill of one group. ``read_stack`` returns the stack with this group only."""

    experiments: DrillExperiments
    read_stack: Callable[[], StackSnapshot]
    read_timeline: Callable[[str], JobTimeline]
    experiment: str = ""

    def plan(self) -> tuple[str, StackSnapshot]:
        """Return the template's id and the current snapshot.

        Raises ``DrillError`` if the stack or the group is not ready for a drill.
        """
        template, snapshot = self.experiments.template(), self.read_stack()
        group = _single_group(snapshot)
        if group.error:
            raise DrillError(f"group {group.name!r}: {group.error}")
        if snapshot.alarms:
            alarms = ", ".join(alarm.name for alarm in snapshot.alarms)
            raise DrillError(f"stack {snapshot.stack!r} has active alarms: {alarms}")
        if group.missing_slots or any(phase_of(instance) == "draining" for instance in group.instances):
            raise DrillError(
                f"group {group.name!r} misses {group.missing_slots} of {group.target} slots or has draining "
                "instances; a drill requires a complete group"
            )
        if snapshot.jobs and not any(job.status.phase == "running" for job in snapshot.jobs):
            states = "; ".join(
                f"{job.snapshot.name} is {job.status.phase}{job.status.reason and ': '}{job.status.reason}"
                for job in snapshot.jobs
            )
            raise DrillError(f"{states}; a drill requires a running job")
        if not any(instance.purchase_option is PurchaseOption.SPOT for instance in group.instances):
            raise DrillError(f"group {group.name!r} has no Spot Instance to interrupt")
        return template, snapshot

    def start(self, template: str, snapshot: StackSnapshot) -> DrillProgress:
        """Start the experiment; ``snapshot`` is the stack just before."""
        progress = DrillProgress(snapshot.groups[0].name, snapshot.now)
        progress.update(_single_group(snapshot), snapshot.now, snapshot.jobs)
        self.experiment = self.experiments.start(template)
        return progress

    def poll(self, progress: DrillProgress) -> bool:
        """Poll once and return whether to continue. Raises ``DrillError`` if FIS interrupted no instance."""
        snapshot = self.read_stack()
        progress.update(_single_group(snapshot), snapshot.now, snapshot.jobs)
        state = self.experiments.state(self.experiment)
        if state.status in ("failed", "stopped", "cancelled") and not progress.losses:
            raise DrillError(
                f"experiment {self.experiment} of group {progress.group!r} has {state.status}: {state.reason}"
            )
        if not progress.is_finished:
            return True
        progress.jobs.timelines.update(
            {name: self.read_timeline(name) for name in progress.jobs.interrupted_jobs}
        )
        return False


def _single_group(snapshot: StackSnapshot) -> GroupSnapshot:
    [group] = snapshot.groups
    return group
