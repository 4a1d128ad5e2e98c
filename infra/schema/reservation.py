"""On-demand capacity that somebody has reserved, and pays for whether it is used or not."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.schema.base import Model


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
    """The id of a reservation, or the ARN of a resource group of them."""
    count: Annotated[int, Field(ge=1, le=5000)]
    """What of them this group may hold, in the units of its target."""

    @property
    def is_one(self) -> bool:
        """Whether it is a single reservation, and no resource group."""
        return self.source.startswith("cr-")


class CapacityBlock(Model):
    """A Capacity Block that has been bought: its reservation, and what and where that is.

    When it begins and ends EC2 tells the controller.
    """

    reservation: Annotated[str, Field(pattern=r"^cr-[0-9a-f]{8,17}$")]
    """The block's id."""
    instance_type: str
    """What has been bought."""
    zone: str
    """Where it is."""
