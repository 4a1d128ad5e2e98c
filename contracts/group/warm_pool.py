"""A group's warm pool: what it costs and saves, and its Spot share, which it can stand in for."""

from __future__ import annotations

from typing import Final

WARM_INSTANCE_PRICE: Final = 0.01
"""Price of a stopped instance, its root volume, relative to a running On-Demand instance. 125 GiB of gp3 at
$0.08 per GiB-month cost $0.0137 an hour; a g6.xlarge costs $0.805, a g5.2xlarge $1.212 (us-east-1)."""
COLD_BOOT_SECONDS: Final = 180.0
WARM_BOOT_SECONDS: Final = 60.0
"""Typical seconds from launch to ready, for a new instance and for one from the warm pool."""
RETURN_SECONDS: Final = 60.0
"""Seconds until an instance that returned to the warm pool can start again; assumed. EC2 bills until the
instance is stopping, not while it stops. Source: EC2 user guide, "Amazon EC2 instance state changes"."""


def on_demand_share(capacity: int, base: int, spot_percentage: int) -> int:
    """Return the On-Demand slots among ``capacity`` slots; the share above ``base`` is rounded up.

    A capacity of at most ``base`` is On-Demand alone.
    Source: EC2 Auto Scaling user guide, "Mixed instances group", on fractional percentages.
    """
    above = max(0, capacity - base)
    return min(capacity, base) + -(-above * (100 - spot_percentage) // 100)
