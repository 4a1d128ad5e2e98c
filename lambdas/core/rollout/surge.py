"""The controller's side of a rollout: surge slots above the target, and tolerance for restarting workers."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from contracts.group.control import Mode
from lambdas.core.model import Observation

MAX_AGE_SECONDS: Final = 3600.0
"""An older request is ignored: the health checker, which rewrites it twice as often, is not running."""
MAX_CLOCK_SKEW_SECONDS: Final = 60.0
"""Maximum time by which the health checker's clock may be ahead."""
MAX_RESTARTING_DIVISOR: Final = 5
"""One instance in this many, rounded up, may count as restarting."""


def with_surge(observation: Observation, now: float) -> Observation:
    """Return the observation with the surge added to its target and restarting instances counted as ready.

    These instances do not serve, but the health checker keeps enough others serving, so the controller must
    not launch replacements for them.
    """
    request, group = observation.rollout_request, observation.group
    if not now - MAX_AGE_SECONDS < request.requested_at <= now + MAX_CLOCK_SKEW_SECONDS:
        return observation
    if group.control.mode in (Mode.MANUAL, Mode.PAUSED) or group.config.break_before_make or not group.target:
        return observation
    live = {i.id for i in observation.instances if not i.is_terminating}
    restarting = sorted(live & {*request.restarting})[: -(-len(live) // MAX_RESTARTING_DIVISOR)]
    instances = tuple(
        replace(i, ready_since=now) if i.id in restarting and i.ready_since is None else i
        for i in observation.instances
    )
    target = max(group.target, min(group.maximum, group.target + request.surge))
    return replace(observation, group=replace(group, target=target), instances=instances)
