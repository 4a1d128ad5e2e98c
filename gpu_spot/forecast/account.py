"""Spot prices, placement scores and hours of earlier runs of the caller's account."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from contracts.group.warm_pool import on_demand_share
from contracts.jobs.attempt import JobAttempt
from gpu_spot.errors import aws_error
from gpu_spot.forecast.prices import PRODUCTS, newest
from infra.schema import Capacity
from lambdas.core.model import Pool

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client


def spot_prices(ec2: EC2Client, types: Iterable[str], now: datetime) -> dict[Pool, float]:
    """Return the current Spot price of each pool in the client's region, in US dollars per hour.

    The history since ``StartTime`` begins with the last change before it (API reference,
    ``DescribeSpotPriceHistory``). Raises ``ValueError`` if it cannot be read.
    """
    request: dict[str, Any] = {"InstanceTypes": sorted(set(types)), "ProductDescriptions": list(PRODUCTS)}
    pages = ec2.get_paginator("describe_spot_price_history").paginate(StartTime=now, **request)
    try:
        return newest(row for page in pages for row in page["SpotPriceHistory"])
    except (BotoCoreError, ClientError) as error:
        raise aws_error("Spot prices of the account", error) from None


def run_hours(attempts: Sequence[JobAttempt]) -> list[float]:
    """Return the hours of instances of each run that is done; one with a restarted agent has two attempts."""
    hours = dict[tuple[str, str], float]()
    for attempt in attempts:
        key, end = (attempt.revision, attempt.instance), attempt.ended or attempt.last_seen_at
        hours[key] = max(hours.get(key, 0.0), (end - attempt.launched) / 3600)
    done = {attempt.revision for attempt in attempts if attempt.outcome == "done"}
    return [sum(part for (of, _), part in hours.items() if of == run) for run in sorted(done)]


def placement_scores(ec2: EC2Client, capacities: Mapping[str, Capacity], region: str) -> dict[str, int]:
    """Return EC2's Spot placement score, 1 to 10, of each group's Spot capacity in a region.

    A score is current and no guarantee; with fewer than three types it is low (EC2 user guide, "Spot
    placement score"). A group without Spot has none. Raises ``ValueError`` if it cannot be read.
    """
    scores_by_group: dict[str, int] = {}
    for name, capacity in capacities.items():
        owned = on_demand_share(capacity.target, capacity.on_demand_base, capacity.spot_percentage)
        if (spot_target := capacity.target - owned) == 0:
            continue
        request: dict[str, Any] = {"InstanceTypes": list(capacity.types), "RegionNames": [region]}
        instances = -(-spot_target // min(capacity.weights.values()))
        try:
            response = ec2.get_spot_placement_scores(TargetCapacity=instances, **request)
        except (BotoCoreError, ClientError) as error:
            raise aws_error(f"Spot placement score of {name}", error) from None
        if scores := [region_score["Score"] for region_score in response["SpotPlacementScores"]]:
            scores_by_group[name] = max(scores)
    return scores_by_group
