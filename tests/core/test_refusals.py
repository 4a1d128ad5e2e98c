"""AWS's words for a refused launch, by what they mean for us."""

from __future__ import annotations

import pytest

from lambdas.core.launch_failures import classify
from lambdas.core.model import RefusalKind


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
        # hashicorp/terraform-provider-aws, pull request 26493: error event of a Spot Fleet
        (
            "m3.large, ami-00413793e4d8a02c8, Linux/UNIX: There is no Spot capacity available that matches "
            "your request.",
            RefusalKind.CAPACITY,
        ),
        # c6fc/npk, issue 70: likewise
        (
            "p2.xlarge, ami-0e02647cb673cb89a, Linux/UNIX: We currently do not have sufficient p2.xlarge "
            "capacity in the Availability Zone you requested",
            RefusalKind.CAPACITY,
        ),
        # compiler-explorer/infra, issue 601: activity of an Auto Scaling group
        (
            "InvalidFleetConfiguration - Your requested instance type (c5.large) is not supported in your "
            "requested Availability Zone (us-east-1e).",
            RefusalKind.CAPACITY,
        ),
        (
            "Could not launch On-Demand Instances. Unsupported - Your requested instance type (p3.2xlarge) "
            "is not supported in your requested Availability Zone (eu-central-1c). Please retry your request "
            "by not specifying an Availability Zone or choosing eu-central-1a, eu-central-1b.",
            RefusalKind.CAPACITY,
        ),
        (
            "Instance became unhealthy while waiting for instance to be in InService state. Termination "
            "Reason: Server.InternalError: Internal error on launch",
            RefusalKind.CAPACITY,
        ),
        (
            "Instance became unhealthy while waiting for instance to be in InService state. Termination "
            "Reason: Server.SpotInstanceTermination: Spot instance termination",
            RefusalKind.CAPACITY,
        ),
        (
            "Request limit exceeded. Launching EC2 instance failed.",
            RefusalKind.CAPACITY,
        ),
        # Not AWS's own: a key that the service-linked role may not use.
        (
            "Instance became unhealthy while waiting for instance to be in InService state. Termination "
            "Reason: Client.InternalError: Client error on launch",
            RefusalKind.PERMISSION,
        ),
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
