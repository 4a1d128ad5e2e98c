"""Settings of reserved On-Demand capacity, which is paid for whether it is used or not."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from infra.schema.base import Model, check_region


class Reservation(Model):
    """On-Demand Capacity Reservations."""

    source: Annotated[
        str,
        Field(
            pattern=(
                r"^(cr-[0-9a-f]{8,17}"
                r"|arn:aws[a-z-]*:resource-groups:[a-z0-9-]+:\d{12}:group/[A-Za-z0-9_.-]{1,300})$"
            )
        ),
    ]
    """ID of a capacity reservation, or ARN of a resource group of reservations."""
    _of_the_region = field_validator("source")(check_region)
    count: Annotated[int, Field(ge=1, le=5000)]
    """Reserved capacity that this group may use, in the unit of its target."""

    @property
    def is_single(self) -> bool:
        """Whether the source is a single reservation, not a resource group."""
        return self.source.startswith("cr-")


class CapacityBlock(Model):
    """A purchased Capacity Block for ML.

    The controller reads its start and end from EC2.
    """

    reservation: Annotated[str, Field(pattern=r"^cr-[0-9a-f]{8,17}$")]
    """ID of the block's capacity reservation."""
    instance_type: str
    """Instance type of the block."""
    zone: str
    """Availability Zone of the block."""
