"""A Capacity Block as the fallback of a job with a deadline: prepaid instances between two dates.

Between these dates the fallback holds the reserved instances; outside of them there is no fallback.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from contracts.limits import NOTICE_SECONDS
from lambdas.core.model import GroupRole, Observation

TERMINATION_LEAD_SECONDS: Final = 1800.0
"""Time before the block's end at which EC2 starts to terminate its instances.

Source: EC2 user guide, "Capacity Blocks for ML".
"""
HANDOVER_LEAD_SECONDS: Final = 1800.0
"""Time before the termination at which a successor is requested: a boot and the migration of a volume."""
SAVE_LEAD_SECONDS: Final = 300.0
"""Time before the termination at which the instance is terminated through its group, whose lifecycle hook
lets the job save; an instance that EC2 terminates has no hook.

Source: EC2 Auto Scaling user guide, "Use Capacity Blocks for machine learning workloads".
"""


def apply_block(observation: Observation, ends: float | None, now: float) -> Observation:
    """Return the observation with the capacity of a block that ends at ``ends``; ``None``: not active."""
    group = observation.group
    if ends is not None and now < ends - TERMINATION_LEAD_SECONDS - HANDOVER_LEAD_SECONDS:
        return replace(observation, group=replace(group, reserved=group.target))
    without_fallback = replace(observation, group=replace(group, fallback=False))
    last = None if ends is None else ends - TERMINATION_LEAD_SECONDS - SAVE_LEAD_SECONDS
    if last is None or now < last:
        return without_fallback
    deadline = last + NOTICE_SECONDS
    instances = tuple(
        replace(i, deadline=min(deadline, i.deadline or deadline))
        if i.group_role is GroupRole.FALLBACK
        else i
        for i in observation.instances
    )
    return replace(without_fallback, instances=instances)
