"""The progress and the result of a drill, from successive snapshots of the group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from gpu_spot.drill.training import JobsProgress
from gpu_spot.jobs.report import JobReport
from gpu_spot.status.snapshot import GroupSnapshot, phase_of

NOTICE_TIMEOUT_SECONDS: Final = 600.0
"""Seconds after the start within which an instance must be interrupted; otherwise the drill ends."""
DRILL_TIMEOUT_SECONDS: Final = 3600.0
"""Seconds after the start at which a drill ends even if the group has not recovered."""


@dataclass(slots=True)
class InstanceLoss:
    """An instance that the drill interrupted; times are epoch seconds, None if not observed.

    ``noticed_at`` is when the termination notice was first seen, ``terminated_at`` when it was first missing.
    """

    instance: str
    instance_type: str
    zone: str
    noticed_at: float | None = None
    terminated_at: float | None = None


@dataclass(slots=True)
class DrillProgress:
    """The progress of a drill, updated with snapshots of one group in order of time.

    Every interruption during the drill counts as the drill's: EC2 does not show its cause.
    """

    group: str
    started_at: float
    losses: dict[str, InstanceLoss] = field(default_factory=dict)
    jobs: JobsProgress = field(default_factory=JobsProgress)
    min_serving: int | None = None
    target: int = 0
    shortage_seconds: float = 0.0
    recovered_at: float | None = None
    _now: float | None = None
    _previous: GroupSnapshot | None = None

    def update(self, snapshot: GroupSnapshot, now: float, jobs: Iterable[JobReport] = ()) -> None:
        """Add a snapshot of the group and its training jobs."""
        self.target = snapshot.target
        live = {instance.id: instance for instance in snapshot.instances}
        if self._previous is not None and self._now is not None:
            unserved = self._previous.target - self._previous.serving_slots(self._now)
            self.shortage_seconds += unserved * (now - self._now)
            for instance in self._previous.instances:
                loss = self.losses.get(instance.id)
                if loss is not None and instance.id not in live and loss.terminated_at is None:
                    loss.terminated_at = now
        for instance in snapshot.instances:
            if phase_of(instance) == "draining" and instance.id not in self.losses:
                self.losses[instance.id] = InstanceLoss(
                    instance.id, instance.pool.instance_type, instance.pool.zone, noticed_at=now
                )
        if self.losses:
            serving = snapshot.serving_slots(now)
            self.min_serving = serving if self.min_serving is None else min(self.min_serving, serving)
            all_gone = all(loss.terminated_at is not None for loss in self.losses.values())
            is_whole = all_gone and not snapshot.missing_slots
            self.recovered_at = (self.recovered_at or now) if is_whole else None
        self.jobs.update(jobs, self.losses)
        self._previous, self._now = snapshot, now

    @property
    def is_recovered(self) -> bool:
        """Whether all interrupted instances are replaced and their jobs have resumed."""
        return self.recovered_at is not None and self.jobs.is_finished

    @property
    def is_finished(self) -> bool:
        """Whether the drill has ended: the group has recovered, or the timeout has passed."""
        if self.is_recovered:
            return True
        waited = 0.0 if self._now is None else self._now - self.started_at
        return waited >= (DRILL_TIMEOUT_SECONDS if self.losses else NOTICE_TIMEOUT_SECONDS)

    @property
    def served_share(self) -> float:
        """Share of the desired slot time that was served during the drill."""
        desired = self.target * self.watched_seconds
        return 1.0 if desired <= 0 else max(0.0, 1 - self.shortage_seconds / desired)

    @property
    def watched_seconds(self) -> float:
        """Duration of the drill."""
        return 0.0 if self._now is None else self._now - self.started_at

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values; times are seconds after the start, None if not observed."""

        def after(at: float | None) -> float | None:
            return None if at is None else round(at - self.started_at, 1)

        return {
            "group": self.group,
            "started": self.started_at,
            "target": self.target,
            "lost": [
                {
                    "instance": loss.instance,
                    "type": loss.instance_type,
                    "zone": loss.zone,
                    "noticed_after": after(loss.noticed_at),
                    "gone_after": after(loss.terminated_at),
                }
                for loss in self.losses.values()
            ],
            "made_good_after": after(self.recovered_at),
            "least_serving": self.min_serving,
            "missing_seconds": round(self.shortage_seconds, 1),
            "served": round(self.served_share, 6),
            "watched_seconds": round(self.watched_seconds, 1),
            "jobs": [loss.to_json(self.started_at) for loss in self.jobs.losses()],
        }
