"""Until when a group's Capacity Block is there, as EC2 says: a block may be extended, or its payment fail."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from lambdas.aws.settings import GroupSettings
from lambdas.core.capacity.capacity_block import within
from lambdas.core.model import Observation

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client


@dataclass(frozen=True, slots=True)
class CapacityBlocks:
    """Looks at the blocks of groups that have one."""

    ec2: EC2Client

    def apply(self, settings: GroupSettings, observation: Observation, now: float) -> Observation:
        """Return the observation with what the group's block gives now.

        Calls: one for a group with a block, else none. Where it cannot be read what is there stays.
        """
        if not settings.config.block:
            return observation
        try:
            return within(observation, self._ends(settings.config.block), now)
        except (BotoCoreError, ClientError) as error:
            told = (
                *observation.troubles,
                f"Capacity Block {settings.config.block!r} could not be read: {error}",
            )
            reserved = min(observation.fallback_desired, observation.group.target)
            group = replace(observation.group, fallback=reserved > 0, reserved=reserved)
            return replace(observation, group=group, troubles=told)

    def _ends(self, block: str) -> float | None:
        """Return when it ends, ``None`` while instances cannot be launched into it."""
        [found] = self.ec2.describe_capacity_reservations(CapacityReservationIds=[block])[
            "CapacityReservations"
        ]
        return found["EndDate"].timestamp() if found["State"] == "active" else None
