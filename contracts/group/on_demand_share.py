"""How many slots of a mixed group AWS buys on-demand."""

from __future__ import annotations


def on_demand_share(capacity: int, base: int, spot_percentage: int) -> int:
    """Return how many of ``capacity`` slots a mixed group buys on-demand; the share above base rounds up.

    Source: EC2 Auto Scaling user guide, "Mixed instances group", on percentages that give fractions.
    """
    above = max(0, capacity - base)
    return min(capacity, base) + -(-above * (100 - spot_percentage) // 100)
