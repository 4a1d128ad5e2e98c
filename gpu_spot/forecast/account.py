"""What the account of the user's credentials says of spot now: prices by pool, and placement scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from contracts.group.on_demand_share import on_demand_share
from gpu_spot.forecast.prices import PRODUCTS, newest
from infra.schema import Capacity
from lambdas.core.model import Pool

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client


def spot_prices(ec2: EC2Client, types: Iterable[str], now: datetime) -> dict[Pool, float]:
    """Return what spot costs now in each pool of the client's region, US dollars an hour.

    From a start on, the history begins with the last change before it (API reference,
    ``DescribeSpotPriceHistory``). Raises ``ValueError`` where it cannot be read.
    """
    asked: dict[str, Any] = {"InstanceTypes": sorted(set(types)), "ProductDescriptions": list(PRODUCTS)}
    pages = ec2.get_paginator("describe_spot_price_history").paginate(StartTime=now, **asked)
    try:
        return newest(row for page in pages for row in page["SpotPriceHistory"])
    except (BotoCoreError, ClientError) as error:
        raise ValueError(f"the account's spot prices cannot be read: {error}") from None


def placement_scores(ec2: EC2Client, capacities: Mapping[str, Capacity], region: str) -> dict[str, int]:
    """Return EC2's spot placement score, 1 to 10, of what each group wants of spot in the region.

    It is of now, and no promise; of fewer than three types it is low (EC2 user guide, "Spot placement
    score"). A group without spot has none. Raises ``ValueError`` where it cannot be read.
    """
    found: dict[str, int] = {}
    for name, capacity in capacities.items():
        base, share = capacity.on_demand_base, capacity.spot_percentage
        wanted = capacity.target - on_demand_share(capacity.target, base, share)
        if wanted == 0:
            continue
        asked: dict[str, Any] = {"InstanceTypes": list(capacity.types), "RegionNames": [region]}
        try:
            answer = ec2.get_spot_placement_scores(TargetCapacity=wanted, **asked)
        except (BotoCoreError, ClientError) as error:
            raise ValueError(f"the spot placement score of {name} cannot be read: {error}") from None
        scores = [one["Score"] for one in answer["SpotPlacementScores"]]
        if scores:
            found[name] = max(scores)
    return found
