"""Offset of a group's target for on-premises workers that serve its queue."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from contracts.stored import stored
from lambdas.core.model import Observation

COOLDOWN_SECONDS: Final = 600.0
"""Time that on-premises workers must be present before they replace instances."""


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class OnPremisesOffset:
    """Slots of the target that on-premises workers serve.

    ``candidate`` is the minimum observed since ``since`` (epoch seconds), while more than ``slots`` are
    observed; ``since`` is ``None`` otherwise.
    """

    slots: int = 0
    candidate: int = 0
    since: float | None = None


def update(previous: OnPremisesOffset, observed: int | None, now: float) -> OnPremisesOffset:
    """Return the offset after an observation of ``observed`` slots; ``None``: they could not be read.

    Missing workers are replaced at once (the count tolerates late heartbeats); new ones count after the
    cooldown.
    """
    if observed is None:
        return previous
    if observed <= previous.slots:
        return OnPremisesOffset(observed)
    if previous.since is None:
        return OnPremisesOffset(previous.slots, observed, now)
    candidate = min(observed, previous.candidate)
    if now - previous.since < COOLDOWN_SECONDS:
        return replace(previous, candidate=candidate)
    return update(OnPremisesOffset(candidate), observed, now)


def with_offset(observation: Observation, slots: int) -> Observation:
    """Return the observation with the target reduced by ``slots``, but not below the On-Demand base."""
    group = observation.group
    target = min(group.target, max(group.config.base, group.target - slots))
    if target == group.target:
        return observation
    return replace(observation, group=replace(group, target=target, reserved=min(group.reserved, target)))
