"""On-Demand slots of a primary group: Auto Scaling's rule for mixed instances, used for Spot Fleets, too."""

from __future__ import annotations


def on_demand_share(capacity: int, base: int, spot_percentage: int) -> int:
    """Return the On-Demand slots among ``capacity`` slots; the share above ``base`` is rounded up.

    Source: EC2 Auto Scaling user guide, "Mixed instances group", on fractional percentages.
    """
    above = max(0, capacity - base)
    return min(capacity, base) + -(-above * (100 - spot_percentage) // 100)
