"""AWS's words for a refused launch, by what they mean for us."""

from __future__ import annotations

import pytest

from lambdas.core.launch_failures import classify
from lambdas.core.model import LaunchFailureKind


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (
            "Could not launch Spot Instances. UnfulfillableCapacity - Unable to fulfill capacity due to your "
            "request configuration. Please adjust your request and try again. Launching EC2 instance failed.",
            LaunchFailureKind.CAPACITY,
        ),
        (
            "We currently do not have sufficient p3.2xlarge capacity in the Availability Zone you requested "
            "(us-west-2a). Our system will be working on provisioning additional capacity.",
            LaunchFailureKind.CAPACITY,
        ),
        ("There is no Spot capacity available that matches your request.", LaunchFailureKind.CAPACITY),
        ("capacity-not-available", LaunchFailureKind.CAPACITY),
        # hashicorp/terraform-provider-aws, pull request 26493: error event of a Spot Fleet
        (
            "m3.large, ami-00413793e4d8a02c8, Linux/UNIX: There is no Spot capacity available that matches "
            "your request.",
            LaunchFailureKind.CAPACITY,
        ),
        # c6fc/npk, issue 70: likewise
        (
            "p2.xlarge, ami-0e02647cb673cb89a, Linux/UNIX: We currently do not have sufficient p2.xlarge "
            "capacity in the Availability Zone you requested",
            LaunchFailureKind.CAPACITY,
        ),
        # compiler-explorer/infra, issue 601: activity of an Auto Scaling group
        (
            "InvalidFleetConfiguration - Your requested instance type (c5.large) is not supported in your "
            "requested Availability Zone (us-east-1e).",
            LaunchFailureKind.CAPACITY,
        ),
        (
            "Could not launch On-Demand Instances. Unsupported - Your requested instance type (p3.2xlarge) "
            "is not supported in your requested Availability Zone (eu-central-1c). Please retry your request "
            "by not specifying an Availability Zone or choosing eu-central-1a, eu-central-1b.",
            LaunchFailureKind.CAPACITY,
        ),
        (
            "Instance became unhealthy while waiting for instance to be in InService state. Termination "
            "Reason: Server.InternalError: Internal error on launch",
            LaunchFailureKind.CAPACITY,
        ),
        (
            "Instance became unhealthy while waiting for instance to be in InService state. Termination "
            "Reason: Server.SpotInstanceTermination: Spot instance termination",
            LaunchFailureKind.CAPACITY,
        ),
        (
            "Request limit exceeded. Launching EC2 instance failed.",
            LaunchFailureKind.CAPACITY,
        ),
        # Not AWS's own: a key that the service-linked role may not use.
        (
            "Instance became unhealthy while waiting for instance to be in InService state. Termination "
            "Reason: Client.InternalError: Client error on launch",
            LaunchFailureKind.PERMISSION,
        ),
        ("price-too-low", LaunchFailureKind.CAPACITY),
        (
            "You have requested more vCPU capacity than your current vCPU limit of 8 allows for the instance "
            "bucket that the specified instance type belongs to. VcpuLimitExceeded",
            LaunchFailureKind.LIMIT,
        ),
        (
            "Could not launch Spot Instances. MaxSpotInstanceCountExceeded - Max spot count exceeded.",
            LaunchFailureKind.LIMIT,
        ),
        ("Not authorized for images: [ami-1]. UnauthorizedOperation", LaunchFailureKind.PERMISSION),
        ("The security group 'sg-1' does not exist.", LaunchFailureKind.CONFIGURATION),
        # Auto Scaling user guide, "Troubleshoot: EC2 instance launch failures"
        ("The key pair gpu does not exist. Launching EC2 instance failed.", LaunchFailureKind.CONFIGURATION),
        ("Invalid device name upload. Launching EC2 instance failed.", LaunchFailureKind.CONFIGURATION),
        (
            "AMI ami-1 is pending, and cannot be run. Launching EC2 instance failed.",
            LaunchFailureKind.CONFIGURATION,
        ),
        ("4 instance(s) are already running. Launching EC2 instance failed.", LaunchFailureKind.LIMIT),
        ("You are not authorized to perform this operation.", LaunchFailureKind.PERMISSION),
        (
            "Your Spot request price of 0.015 is lower than the minimum required Spot request fulfillment "
            "price of 0.0735. Launching EC2 instance failed.",
            LaunchFailureKind.CAPACITY,
        ),
        ("system-error: There was an unexpected system error.", LaunchFailureKind.CAPACITY),
        ("Spot request sir-1: limit-exceeded", LaunchFailureKind.LIMIT),
        ("", LaunchFailureKind.UNKNOWN),
        ("The request cannot be fulfilled.", LaunchFailureKind.UNKNOWN),
        ("instance-terminated-by-moonlight", LaunchFailureKind.UNKNOWN),
        ("Something that AWS has never said before.", LaunchFailureKind.UNKNOWN),
    ],
)
def test_launch_failures_are_classified(message: str, kind: LaunchFailureKind) -> None:
    assert classify(message) is kind
