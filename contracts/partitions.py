"""AWS's partitions: the domains of their endpoints, and images in ECR.

Source: botocore ``data/partitions.json``, ``dnsSuffix``. Service principals are ``<service>.amazonaws.com``
in every partition (aws-cdk ``region-info/lib/default.ts``; its exceptions in ISO partitions, ``cloudhsm``,
``config``, ``dms`` and ``workspaces``, are not used here).
"""

from __future__ import annotations

import re
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

_DUAL_STACK: Final = ("on.aws", "on.amazonwebservices.com.cn")
_REGISTRIES: Final = "|".join(map(re.escape, (*DNS_SUFFIXES.values(), *_DUAL_STACK)))
ECR_IMAGE: Final = re.compile(
    rf"(?P<host>(?P<account>\d{{12}})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.(?:{_REGISTRIES}))"
    r"/(?P<name>[^@:]+)"
)
"""An image in ECR, by any endpoint. Source: ECR user guide, "Making requests to Amazon ECR registries"."""


def reversed_dns(suffix: str) -> str:
    """Return a domain with its labels in reverse order, as names of VPC endpoint services begin."""
    return ".".join(reversed(suffix.split(".")))
