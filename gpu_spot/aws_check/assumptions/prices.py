"""What spot costs."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.lab import INSTANCE_TYPE, Falsified, Lab


@assumes("DescribeSpotPriceHistory", "lambdas/aws/capacity/spot_prices.py", "a zone has none, or several")
def spot_price_of_now(lab: Lab) -> str:
    """Asked for one moment, the history of spot prices tells one price for each zone: that of then."""
    at = datetime.fromtimestamp(lab.clock.now(), UTC)
    told = lab.clients("ec2").describe_spot_price_history(
        InstanceTypes=[INSTANCE_TYPE],
        ProductDescriptions=["Linux/UNIX", "Linux/UNIX (Amazon VPC)"],
        Filters=[{"Name": "availability-zone", "Values": list(lab.subnets)}],
        StartTime=at,
        EndTime=at,
    )["SpotPriceHistory"]
    prices = Counter(one["AvailabilityZone"] for one in told)
    if prices != Counter(list(lab.subnets)):
        raise Falsified(f"prices by zone: {dict(prices)}, zones: {', '.join(lab.subnets)}")
    return f"one price for each of {len(prices)} zones"
