"""AWS's partitions: the domains of their endpoints.

Source: botocore ``data/partitions.json``, ``dnsSuffix``. Service principals are ``<service>.amazonaws.com``
in every partition (aws-cdk ``region-info/lib/default.ts``; its exceptions in ISO partitions, ``cloudhsm``,
``config``, ``dms`` and ``workspaces``, are not used here).
"""

from __future__ import annotations

from typing import Final

DNS_SUFFIXES: Final = {
    "aws": "amazonaws.com",
    "aws-cn": "amazonaws.com.cn",
    "aws-eusc": "amazonaws.eu",
    "aws-iso": "c2s.ic.gov",
    "aws-iso-b": "sc2s.sgov.gov",
    "aws-iso-e": "cloud.adc-e.uk",
    "aws-iso-f": "csp.hci.ic.gov",
    "aws-us-gov": "amazonaws.com",
}
"""Domain of a partition's endpoints, by the partition's ID."""


def reversed_dns(suffix: str) -> str:
    """Return a domain with its labels in reverse order, as names of VPC endpoint services begin."""
    return ".".join(reversed(suffix.split(".")))
