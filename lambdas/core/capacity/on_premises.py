"""Workers elsewhere that serve a group's queue: for as many slots AWS needs to hold none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from contracts.stored import stored
from lambdas.core.model import Observation

COOLDOWN_SECONDS: Final = 600.0
"""So long they must have been there before an instance is let go for them."""


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class StandIns:
    """For how many slots workers elsewhere are relied on.

    ``most`` is the least that was seen since ``since`` (epoch seconds) of what lies above ``slots``; ``None``
    while nothing does.
    """

    slots: int = 0
    most: int = 0
    since: float | None = None


def follow(known: StandIns, seen: int | None, now: float) -> StandIns:
    """Return it after one look that found workers for ``seen`` slots; ``None``: they could not be read.

    Who is missing is replaced at once: that a heartbeat may be late is allowed for where they are counted.
    Who has come back, or is new, counts after the cooldown.
    """
    if seen is None:
        return known
    if seen <= known.slots:
        return StandIns(seen)
    if known.since is None:
        return StandIns(known.slots, seen, now)
    most = min(seen, known.most)
    if now - known.since < COOLDOWN_SECONDS:
        return replace(known, most=most)
    return follow(StandIns(most), seen, now)


def relieved(observation: Observation, slots: int) -> Observation:
    """Return the observation with the target that is left to AWS; the on-demand base is kept all the same."""
    group = observation.group
    target = min(group.target, max(group.base, group.target - slots))
    if target == group.target:
        return observation
    return replace(observation, group=replace(group, target=target, reserved=min(group.reserved, target)))
