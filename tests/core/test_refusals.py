"""AWS's words for a refused launch, by what they mean for us."""

from __future__ import annotations

import pytest

from lambdas.core.model import RefusalKind
from lambdas.core.refusals import classify


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (
            "Could not launch Spot Instances. UnfulfillableCapacity - Unable to fulfill capacity due to your "
            "request configuration. Please adjust your request and try again. Launching EC2 instance failed.",
            RefusalKind.CAPACITY,
        ),
        (
            "We currently do not have sufficient p3.2xlarge capacity in the Availability Zone you requested "
            "(us-west-2a). Our system will be working on provisioning additional capacity.",
            RefusalKind.CAPACITY,
        ),
        ("There is no Spot capacity available that matches your request.", RefusalKind.CAPACITY),
        ("capacity-not-available", RefusalKind.CAPACITY),
        ("price-too-low", RefusalKind.CAPACITY),
        (
            "You have requested more vCPU capacity than your current vCPU limit of 8 allows for the instance "
            "bucket that the specified instance type belongs to. VcpuLimitExceeded",
            RefusalKind.LIMIT,
        ),
        (
            "Could not launch Spot Instances. MaxSpotInstanceCountExceeded - Max spot count exceeded.",
            RefusalKind.LIMIT,
        ),
        ("Not authorized for images: [ami-1]. UnauthorizedOperation", RefusalKind.PERMISSION),
        ("The security group 'sg-1' does not exist.", RefusalKind.CONFIGURATION),
        ("Something that AWS has never said before.", RefusalKind.CONFIGURATION),
    ],
)
def test_refusals_are_told_apart(message: str, kind: RefusalKind) -> None:
    assert classify(message) is kind
