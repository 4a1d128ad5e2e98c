"""Capacity Blocks: their end times, read from EC2, since a block can be extended or its payment can fail."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from lambdas.aws.settings import GroupSettings
from lambdas.core.capacity.capacity_block import apply_block
from lambdas.core.model import Observation

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client


@dataclass(frozen=True, slots=True)
class CapacityBlocks:
    """Reads the Capacity Blocks of groups."""

    ec2: EC2Client

    def apply(self, settings: GroupSettings, observation: Observation, now: float) -> Observation:
        """Return the observation with the capacity of the group's block.

        Makes one call for a group with a block. If it fails, the current reserved capacity is kept.
        """
        if not settings.group.config.block:
            return observation
        try:
            return apply_block(observation, self._end(settings.group.config.block), now)
        except (BotoCoreError, ClientError) as error:
            read_errors = (
                *observation.read_errors,
                f"Capacity Block {settings.group.config.block!r} not read: {error}",
            )
            reserved = min(observation.fallback_desired, observation.group.target)
            group = replace(observation.group, fallback=reserved > 0, reserved=reserved)
            return replace(observation, group=group, read_errors=read_errors)

    def _end(self, block: str) -> float | None:
        """Return the end of the block; None while instances cannot be launched into it."""
        [reservation] = self.ec2.describe_capacity_reservations(CapacityReservationIds=[block])[
            "CapacityReservations"
        ]
        return reservation["EndDate"].timestamp() if reservation["State"] == "active" else None
