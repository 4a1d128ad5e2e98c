"""What the controller makes of a roll-out: more slots than the target, and patience with who starts anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from contracts.group.control import Mode
from lambdas.core.model import Observation

FRESH_SECONDS: Final = 3600.0
"""What is older is not followed: its writer, who says it anew twice as often, has not looked since."""
AHEAD_SECONDS: Final = 60.0
"""By so much the checker's clock may be ahead."""
SHARE: Final = 5
"""For one in so many instances the word is taken that they start anew, for one at the least."""


def eased(observation: Observation, now: float) -> Observation:
    """Return the observation with the surge in its target, and those as serving that start anew.

    They do not serve. Whoever asked has seen to it that enough others do, so nobody stands in for them.
    """
    rolling, group = observation.rolling, observation.group
    if rolling is None or not now - FRESH_SECONDS < rolling.at <= now + AHEAD_SECONDS:
        return observation
    if group.control.mode in (Mode.MANUAL, Mode.PAUSED) or group.break_before_make or not group.target:
        return observation
    live = {i.id for i in observation.instances if not i.given_up}
    believed = set(sorted(live.intersection(rolling.anew))[: -(-len(live) // SHARE)])
    instances = tuple(
        replace(i, ready_since=now) if i.id in believed and i.ready_since is None else i
        for i in observation.instances
    )
    target = max(group.target, min(group.maximum, group.target + rolling.surge))
    return replace(observation, group=replace(group, target=target), instances=instances)
