"""A Capacity Block: instances that are paid for and there from one date to another, for a job with a date.

The block stands in the place of on-demand: between its dates the fallback holds what is reserved there,
outside of them there is no fallback.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lambdas.core.events import NOTICE_SECONDS
from lambdas.core.model import Observation, Side

TAKEN_SECONDS: Final = 1800.0
"""So long before the block's end EC2 begins to end its instances (EC2 guide, "Capacity Blocks for ML")."""
HAND_OVER_SECONDS: Final = 1800.0
"""So long before that a successor is sought: a boot, and the move of a volume."""
RELEASE_SECONDS: Final = 300.0
"""So long before that the job is let go in any case, and its group's hook gives it the time to save: what EC2
ends itself has none (EC2 Auto Scaling guide, "Use Capacity Blocks for machine learning workloads")."""


def within(observation: Observation, ends: float | None, now: float) -> Observation:
    """Return the observation with what a block that ends at ``ends`` gives now; ``None``: it is not there."""
    group = observation.group
    if ends is not None and now < ends - TAKEN_SECONDS - HAND_OVER_SECONDS:
        return replace(observation, group=replace(group, reserved=group.target))
    seen = replace(observation, group=replace(group, fallback=False))
    last = None if ends is None else ends - TAKEN_SECONDS - RELEASE_SECONDS
    if last is None or now < last:
        return seen
    deadline = last + NOTICE_SECONDS
    instances = tuple(
        replace(i, deadline=min(deadline, i.deadline or deadline)) if i.side is Side.FALLBACK else i
        for i in observation.instances
    )
    return replace(seen, instances=instances)
