"""What spot costs now, against the on-demand that stands in for it: read rarely, remembered in between."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from lambdas.aws.settings import GroupSettings
from lambdas.core.capacity.memory import PRICE_SECONDS, Memory
from lambdas.core.model import Pool

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

_PRODUCTS: Final = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
"""Accounts that once had EC2-Classic are told of their networks under the second name: experience."""


@dataclass(frozen=True, slots=True)
class SpotPrices:
    """Keeps the prices that a group remembers."""

    ec2: EC2Client

    def refresh(self, settings: GroupSettings, memory: Memory, now: float) -> tuple[Memory, str | None]:
        """Return the memory with prices of now, and what kept them from being read.

        Calls: none as long as the remembered ones are believed, nor where no on-demand price is known, else
        one for each 1,000 pools. Where that fails the last prices stay, and the next look tries again.
        """
        if not settings.config.on_demand_prices:
            return replace(memory, spot_prices={}, priced_at=None), None
        if memory.priced_at is not None and 0 <= now - memory.priced_at < PRICE_SECONDS:
            return memory, None
        try:
            return replace(memory, spot_prices=self._read(settings, now), priced_at=now), None
        except (BotoCoreError, ClientError) as error:
            return memory, f"spot prices could not be read: {error}"

    def _read(self, settings: GroupSettings, now: float) -> dict[str, float]:
        on_demand = settings.config.on_demand_prices
        at = datetime.fromtimestamp(now, UTC)
        pages = self.ec2.get_paginator("describe_spot_price_history").paginate(
            InstanceTypes=list(on_demand),  # type: ignore[arg-type]  # any text, to the controller
            ProductDescriptions=list(_PRODUCTS),
            Filters=[{"Name": "availability-zone", "Values": list(settings.config.zones)}],
            # One moment: "the effective price as of the start time" (API, DescribeSpotPriceHistory).
            StartTime=at,
            EndTime=at,
        )
        prices: dict[str, float] = {}
        for page in pages:
            for told in page["SpotPriceHistory"]:
                pool = str(Pool(told["InstanceType"], told["AvailabilityZone"]))
                price = float(told["SpotPrice"]) / on_demand[told["InstanceType"]]
                prices[pool] = min(price, prices.get(pool, math.inf))
        return prices
