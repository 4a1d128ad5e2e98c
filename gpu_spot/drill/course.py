"""What a drill came to, from looks at the group while it went on; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from gpu_spot.drill.training import JobsCourse
from gpu_spot.jobs.account import JobAccount
from gpu_spot.status.seen import GroupSeen, phase_of

NOTICE_WITHIN: Final = 600.0
"""Seconds after the start within which a notice or a loss must be seen; else the drill took nobody."""
OVER_WITHIN: Final = 3600.0
"""Seconds after the start at which watching ends, whatever is missing then."""


@dataclass(slots=True)
class Loss:
    """One instance that the drill took; times in epoch seconds, None for what was not seen.

    ``noticed`` is when its end was first seen to be announced, ``gone`` when it was first missing.
    """

    instance: str
    instance_type: str
    zone: str
    noticed: float | None = None
    gone: float | None = None


@dataclass(slots=True)
class DrillCourse:
    """Hears looks at one group in order of time, from before the drill's start on.

    All that AWS takes while it is watched counts as the drill's: whose wish it was does not show in EC2.
    """

    group: str
    started: float
    losses: dict[str, Loss] = field(default_factory=dict)
    jobs: JobsCourse = field(default_factory=JobsCourse)
    least_serving: int | None = None
    target: int = 0
    missing_seconds: float = 0.0
    made_good: float | None = None
    _now: float | None = None
    _before: GroupSeen | None = None

    def see(self, seen: GroupSeen, now: float, jobs: Iterable[JobAccount] = ()) -> None:
        """Hear how the group stands, and its training jobs."""
        self.target = seen.target
        live = {one.id: one for one in seen.instances}
        if self._before is not None and self._now is not None:
            unserved = self._before.target - self._before.serving(self._now)
            self.missing_seconds += unserved * (now - self._now)
            for one in self._before.instances:
                if one.id in self.losses and one.id not in live and self.losses[one.id].gone is None:
                    self.losses[one.id].gone = now
        for one in seen.instances:
            if phase_of(one) == "draining" and one.id not in self.losses:
                self.losses[one.id] = Loss(one.id, one.pool.instance_type, one.pool.zone, noticed=now)
        if self.losses:
            serving = seen.serving(now)
            self.least_serving = serving if self.least_serving is None else min(self.least_serving, serving)
            all_gone = all(loss.gone is not None for loss in self.losses.values())
            is_whole = all_gone and not seen.missing
            self.made_good = (self.made_good or now) if is_whole else None
        self.jobs.see(jobs, self.losses)
        self._before, self._now = seen, now

    @property
    def is_overcome(self) -> bool:
        """Whether all are gone and replaced, and the jobs that they had go on."""
        return self.made_good is not None and self.jobs.is_over

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be seen: all are replaced, the jobs go on, or it took too long."""
        if self.is_overcome:
            return True
        waited = 0.0 if self._now is None else self._now - self.started
        return waited >= (OVER_WITHIN if self.losses else NOTICE_WITHIN)

    @property
    def served(self) -> float:
        """The share of the wanted worker time that was served from the start to the end of watching."""
        wanted = self.target * self.seconds
        return 1.0 if wanted <= 0 else max(0.0, 1 - self.missing_seconds / wanted)

    @property
    def seconds(self) -> float:
        """How long it was watched."""
        return 0.0 if self._now is None else self._now - self.started

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values: times in seconds after the start, None for what was not seen."""

        def after(at: float | None) -> float | None:
            return None if at is None else round(at - self.started, 1)

        return {
            "group": self.group,
            "started": self.started,
            "target": self.target,
            "lost": [
                {
                    "instance": one.instance,
                    "type": one.instance_type,
                    "zone": one.zone,
                    "noticed_after": after(one.noticed),
                    "gone_after": after(one.gone),
                }
                for one in self.losses.values()
            ],
            "made_good_after": after(self.made_good),
            "least_serving": self.least_serving,
            "missing_seconds": round(self.missing_seconds, 1),
            "served": round(self.served, 6),
            "watched_seconds": round(self.seconds, 1),
            "jobs": [one.to_json(self.started) for one in self.jobs.losses()],
        }
