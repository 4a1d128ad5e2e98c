"""Maximum cost of a run in US dollars, from us-east-1 list prices read in November 2026.

Source: the pages "Amazon EC2 On-Demand Pricing" (t3.nano), "Amazon EBS pricing" and "Amazon VPC pricing"
(public IPv4 addresses), from public copies. Messages, tables and parameters cost less than a cent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpu_spot.aws_check.assumption import Assumption
from gpu_spot.preflight import prices

INSTANCE_HOUR: Final = 0.0052
_ROOT_GIB: Final = 8
_HOURS: Final = 1.0
"""Maximum lifetime of a test's instance: test and cleanup are both bounded."""
_REST: Final = 0.05
_REGIONS: Final = 2.0
"""The most expensive region costs at most twice as much (*known*)."""


def max_cost(assumptions: Iterable[Assumption]) -> float:
    """Return dollars: every instance of every assumption for an hour, with its disk and its address."""
    disk = _ROOT_GIB * prices.GP3_GIB_MONTH / prices.HOURS
    instance = (INSTANCE_HOUR + prices.PUBLIC_ADDRESS_HOUR + disk) * _HOURS * _REGIONS
    return _REST + sum(assumption.instances for assumption in assumptions) * instance
