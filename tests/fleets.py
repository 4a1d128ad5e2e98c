"""Light fleets that record decisions, or that report fewer launch failures."""

from __future__ import annotations

from dataclasses import dataclass, field

from lambdas.aws.capacity.spot_fleet import HISTORY_SECONDS
from lambdas.core.capacity.availability import Decision
from lambdas.core.model import GroupRole
from market.replay.fleet import LightFleet


@dataclass
class RecordingFleet(LightFleet):
    """Records every decision with its time."""

    decisions: list[tuple[float, Decision]] = field(default_factory=list)

    def decide(self) -> Decision:
        decision = LightFleet.decide(self)
        self.decisions.append((self._now, decision))
        return decision


@dataclass
class ForgettingFleet(RecordingFleet):
    """Reports a lack of Spot capacity only as long as the history of a Spot Fleet is read."""

    def decide(self) -> Decision:
        refusal = self._refusals.get(GroupRole.PRIMARY)
        if refusal is not None and refusal.failed_at < self._now - HISTORY_SECONDS:
            del self._refusals[GroupRole.PRIMARY]
        return RecordingFleet.decide(self)


@dataclass
class SilentFleet(RecordingFleet):
    """Reports no lack of Spot capacity."""

    def refused(self, side: GroupRole, message: str | None) -> None:
        if side is GroupRole.FALLBACK:
            LightFleet.refused(self, side, message)
