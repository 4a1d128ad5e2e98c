"""Spot prices as fractions of the On-Demand prices that they replace, cached in the group's memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from lambdas.aws.settings import GroupSettings
from lambdas.core.capacity.memory import PRICE_SECONDS, Memory
from lambdas.core.model import Pool

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import SpotPriceTypeDef

_PRODUCTS: Final = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
"""Accounts that once had EC2-Classic get prices for VPCs under the second name. Source: experience."""
_SHARED_SECONDS: Final = 60.0
"""Age up to which prices that were read for one group are used for another."""


@dataclass(frozen=True, slots=True)
class SpotPrices:
    """Refreshes the prices in a group's memory; ``shared``: those that were read, by types and zones."""

    ec2: EC2Client
    shared: dict[tuple[Sequence[str], ...], tuple[float, Sequence[SpotPriceTypeDef]]] = field(
        default_factory=dict
    )

    def refresh(self, settings: GroupSettings, memory: Memory, now: float) -> tuple[Memory, str | None]:
        """Return the memory with current prices, and the error if they could not be read.

        Makes no call while the stored prices are valid or no On-Demand price is known, else one per 1,000
        pools. After an error the last prices are kept and the next pass retries.
        """
        if not settings.group.config.on_demand_prices:
            return replace(memory, spot_prices={}, priced_at=None), None
        if memory.priced_at is not None and 0 <= now - memory.priced_at < PRICE_SECONDS:
            return memory, None
        try:
            return replace(memory, spot_prices=self._read(settings, now), priced_at=now), None
        except (BotoCoreError, ClientError) as error:
            return memory, f"Spot prices not read: {error}"

    def _read(self, settings: GroupSettings, now: float) -> dict[str, float]:
        on_demand = settings.group.config.on_demand_prices
        prices: dict[str, float] = {}
        for record in self._records((*on_demand,), settings.group.config.zones, now):
            pool = str(Pool(record["InstanceType"], record["AvailabilityZone"]))
            price = float(record["SpotPrice"]) / on_demand[record["InstanceType"]]
            prices[pool] = min(price, prices.get(pool, math.inf))
        return prices

    def _records(
        self, types: tuple[str, ...], zones: tuple[str, ...], now: float
    ) -> Sequence[SpotPriceTypeDef]:
        """Return the prices in dollars; groups with the same types and zones share a call."""
        read_at, records = self.shared.get((types, zones), (-math.inf, ()))
        if 0 <= now - read_at < _SHARED_SECONDS:
            return records
        time = datetime.fromtimestamp(now, UTC)
        pages = self.ec2.get_paginator("describe_spot_price_history").paginate(
            InstanceTypes=list(types),  # type: ignore[arg-type]  # the literal type has no use here
            ProductDescriptions=list(_PRODUCTS),
            Filters=[{"Name": "availability-zone", "Values": list(zones)}],
            # Equal times return "the effective price as of the start time" (DescribeSpotPriceHistory).
            StartTime=time,
            EndTime=time,
        )
        records = [record for page in pages for record in page["SpotPriceHistory"]]
        self.shared[types, zones] = (now, records)
        return records
