"""Spot prices."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.aws_test_bed import INSTANCE_TYPE, AwsTestBed, Falsified


@assumes("DescribeSpotPriceHistory", "lambdas/aws/capacity/spot_prices.py", "a zone has no price, or several")
def spot_price_of_now(test_bed: AwsTestBed) -> str:
    """For a single point in time DescribeSpotPriceHistory returns one current price per zone."""
    at = datetime.fromtimestamp(test_bed.clock.now(), UTC)
    history = test_bed.clients("ec2").describe_spot_price_history(
        InstanceTypes=[INSTANCE_TYPE],
        ProductDescriptions=["Linux/UNIX", "Linux/UNIX (Amazon VPC)"],
        Filters=[{"Name": "availability-zone", "Values": list(test_bed.subnets)}],
        StartTime=at,
        EndTime=at,
    )["SpotPriceHistory"]
    prices = Counter(record["AvailabilityZone"] for record in history)
    if prices != Counter(list(test_bed.subnets)):
        raise Falsified(f"prices by zone: {dict(prices)}, zones: {', '.join(test_bed.subnets)}")
    return f"one price for each of {len(prices)} zones"
