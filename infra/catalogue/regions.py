"""AWS Regions, to find a misspelt one before anything is created in it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

_NAMES: Final = """
af-south-1 ap-east-1 ap-east-2 ap-northeast-1 ap-northeast-2 ap-northeast-3 ap-south-1 ap-south-2
ap-southeast-1 ap-southeast-2 ap-southeast-3 ap-southeast-4 ap-southeast-5 ap-southeast-6
ap-southeast-7 ca-central-1 ca-west-1 cn-north-1 cn-northwest-1 eu-central-1 eu-central-2 eu-north-1
eu-south-1 eu-south-2 eu-west-1 eu-west-2 eu-west-3 il-central-1 me-central-1 me-south-1
mx-central-1 sa-east-1 us-east-1 us-east-2 us-gov-east-1 us-gov-west-1 us-west-1 us-west-2
us-iso-east-1 us-iso-west-1 us-isob-east-1 us-isob-west-1 eu-isoe-west-1 us-isof-east-1 us-isof-south-1
eusc-de-east-1
"""
REGIONS: Final = frozenset(_NAMES.split())
"""Of all partitions. Source: botocore's endpoints of EC2, November 2026."""


def check(region: str) -> str:
    """Return ``region``; raise ``ValueError`` if AWS has none of that name."""
    if region in REGIONS:
        return region
    near = get_close_matches(region, sorted(REGIONS), n=1)
    example = near[0] if near else "us-west-2"
    raise ValueError(f"must be an AWS Region such as {example}, not {region!r}")
