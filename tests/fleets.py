"""Light fleets that tell what was decided, or that hear less."""

from __future__ import annotations

from dataclasses import dataclass, field

from lambdas.aws.capacity.spot_fleet import HISTORY_SECONDS
from lambdas.core.capacity.availability import Decision
from lambdas.core.model import Side
from market.replay.fleet import LightFleet


@dataclass
class RecordingFleet(LightFleet):
    """Keeps every decision with its time."""

    decisions: list[tuple[float, Decision]] = field(default_factory=list)

    def decide(self) -> Decision:
        decision = LightFleet.decide(self)
        self.decisions.append((self._now, decision))
        return decision


@dataclass
class ForgettingFleet(RecordingFleet):
    """Like a Spot Fleet, it has said that spot is short only for as long as its history is read."""

    def decide(self) -> Decision:
        refusal = self._refusals.get(Side.PRIMARY)
        if refusal is not None and refusal.at < self._now - HISTORY_SECONDS:
            del self._refusals[Side.PRIMARY]
        return RecordingFleet.decide(self)


@dataclass
class SilentFleet(RecordingFleet):
    """Like a Spot Fleet, it does not say that spot is short."""

    def refused(self, side: Side, message: str | None) -> None:
        if side is Side.FALLBACK:
            LightFleet.refused(self, side, message)
