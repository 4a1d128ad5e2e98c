"""List prices of permanent resources in US dollars, read in November 2026; check them before budgeting.

Source: the pages "Amazon VPC pricing" (NAT gateways, public IPv4 addresses, interface endpoints, which are
AWS PrivateLink's), "Amazon EBS pricing", "Amazon CloudWatch pricing", "AWS Secrets Manager pricing" and
"Amazon EKS pricing", from public copies.

us-east-1, us-east-2 and us-west-2 have the same prices; other regions are more expensive.
"""

from __future__ import annotations

import re
from typing import Final

READ: Final = "2026-11"
REGION: Final = "us-east-1"
SAME_PRICES: Final = frozenset({"us-east-1", "us-east-2", "us-west-2"})

HOURS: Final = 730
"""Hours per month, as in the AWS Pricing Calculator."""

NAT_GATEWAY_HOUR: Final = 0.045
PUBLIC_ADDRESS_HOUR: Final = 0.005
ENDPOINT_ZONE_HOUR: Final = 0.01
GP3_GIB_MONTH: Final = 0.08
ALARM_MONTH: Final = 0.10
DASHBOARD_MONTH: Final = 3.00
"""The first three dashboards of an account are free."""
KMS_KEY_MONTH: Final = 1.00
SECRET_MONTH: Final = 0.40
METRIC_MONTH: Final = 0.30
"""A custom metric, of the first 10,000 ("Amazon CloudWatch pricing")."""
LAMBDA_REQUEST: Final = 0.20 / 1_000_000
LAMBDA_GIB_SECOND: Final = 0.0000166667
"""x86 ("AWS Lambda pricing"); the free tier is not subtracted."""
FILE_SYSTEM_GIB_MONTH: Final = 0.30
"""EFS Standard ("Amazon EFS pricing"); reads and writes are extra."""

CLUSTER_HOUR: Final = 0.10
"""An EKS control plane in standard support; EKS add-ons are free."""
CLUSTER_EXTENDED_HOUR: Final = 0.60
"""An EKS control plane in extended support, 14 months after the release of the version in EKS."""
STANDARD_SUPPORT_ENDS: Final = {"1.35": "2027-03-27"}
"""End of standard support by version, if known. Source: endoflife.date, "Amazon EKS"; the EKS guide has AWS's
calendar."""

_NODE_SIZE: Final = re.compile(r"(?P<family>[a-z0-9-]+)\.(?P<count>\d*)(?P<size>small|medium|large|xlarge)")
_OF_LARGE: Final = {"small": 0.25, "medium": 0.5, "large": 1.0, "xlarge": 2.0}
_LARGE_HOUR: Final = {
    **{"c5": 0.085, "c6g": 0.068, "c6i": 0.085, "c7g": 0.0725, "c7i": 0.08925},
    **{"m5": 0.096, "m6a": 0.0864, "m6g": 0.077, "m6i": 0.096, "m7g": 0.0816, "m7i": 0.1008},
    **{"r5": 0.126, "r6g": 0.1008, "r6i": 0.126, "r7g": 0.1071, "t3": 0.0832, "t4g": 0.0672},
}
"""On-Demand Linux price of a family's ``large`` ("Amazon EC2 On-Demand Pricing", two copies agree)."""


def node_hour(instance_type: str) -> float | None:
    """Return the hourly price of an instance type without accelerators, None if unknown.

    Within a family the price is proportional to the size.
    """
    match = _NODE_SIZE.fullmatch(instance_type)
    if match is None or match["family"] not in _LARGE_HOUR:
        return None
    return _LARGE_HOUR[match["family"]] * int(match["count"] or 1) * _OF_LARGE[match["size"]]
