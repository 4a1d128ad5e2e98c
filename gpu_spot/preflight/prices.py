"""List prices of what runs all the time, in US dollars. Read in November 2026; look again before you budget.

Source: the pages "Amazon VPC pricing" (NAT gateways, public IPv4 addresses, interface endpoints, which is
AWS PrivateLink's), "Amazon EBS pricing", "Amazon CloudWatch pricing" and "AWS Secrets Manager pricing", as
public copies have them.
us-east-1, us-east-2 and us-west-2 have the same; other regions ask more.
"""

from __future__ import annotations

from typing import Final

READ: Final = "2026-11"
REGION: Final = "us-east-1"
SAME_PRICES: Final = frozenset({"us-east-1", "us-east-2", "us-west-2"})

HOURS: Final = 730
"""Of a month, as AWS's calculator counts."""

NAT_GATEWAY_HOUR: Final = 0.045
PUBLIC_ADDRESS_HOUR: Final = 0.005
ENDPOINT_ZONE_HOUR: Final = 0.01
GP3_GIB_MONTH: Final = 0.08
ALARM_MONTH: Final = 0.10
DASHBOARD_MONTH: Final = 3.00
"""An account's first three are free."""
KMS_KEY_MONTH: Final = 1.00
SECRET_MONTH: Final = 0.40
METRIC_MONTH: Final = 0.30
"""A metric of one's own, of the first 10,000 ("Amazon CloudWatch pricing")."""
LAMBDA_REQUEST: Final = 0.20 / 1_000_000
LAMBDA_GIB_SECOND: Final = 0.0000166667
"""x86 ("AWS Lambda pricing"); what an account has for free is not taken off."""
FILE_SYSTEM_GIB_MONTH: Final = 0.30
"""EFS Standard ("Amazon EFS pricing"); what is read and written comes on top."""
