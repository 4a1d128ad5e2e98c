"""The On-Demand share of a group by AWS's rule, for all shares that the fleets are tested with."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Final

SHARES: Final = [(base, percentage) for base in (0, 2) for percentage in (0, 25, 75, 100)]
"""On-Demand base, and percentage of Spot above it."""


def on_demand_by_awss_rule(target: int, base: int, spot_percentage: int) -> int:
    """The base, then the On-Demand percentage of what is above it, rounded up.

    Source: EC2 Auto Scaling user guide, "Mixed instances group", on fractional percentages.
    """
    above = Fraction(max(0, target - base)) * (100 - spot_percentage) / 100
    return min(target, base) + ceil(above)
