"""Service-linked roles of the account.

Source: EC2 user guide, "Service-linked role for Spot Instance requests" and "Spot Fleet permissions": only
the console creates the Spot roles automatically, API users "must first ensure that this role exists". Auto
Scaling guide, "Service-linked roles": created with the first group. Amazon MQ guide, "Using service-linked
roles": created with the first broker, writes the logs. Elastic Load Balancing guide, "Using service-linked
roles": created with the first load balancer. FIS user guide, "Using service-linked roles": created
with the first experiment. That Spot launches of a group fail without the role is
from logs of others (AuthFailure.ServiceLinkedRoleCreationNotPermitted).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.stack import Stack

NAME: Final = "service-linked roles"

_SPOT: Final = ("AWSServiceRoleForEC2Spot", "spot.amazonaws.com")
_FLEET: Final = ("AWSServiceRoleForEC2SpotFleet", "spotfleet.amazonaws.com")
_CREATED_BY_AWS: Final = {
    "aws:autoscaling/group:Group": ("AWSServiceRoleForAutoScaling", "group", "up"),
    "aws:fis/experimentTemplate:ExperimentTemplate": ("AWSServiceRoleForFIS", "experiment", "gpu-spot drill"),
    "aws:lb/loadBalancer:LoadBalancer": ("AWSServiceRoleForElasticLoadBalancing", "load balancer", "up"),
    "aws:mq/broker:Broker": ("AWSServiceRoleForAmazonMQ", "broker", "up"),
}
"""Role, what AWS creates it with, and the command whose caller must be allowed to create it."""


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Check each role that the stack's groups need."""
    iam = account.clients("iam")
    for missing in _needed(stack):
        exists = _exists(iam, missing.subject)
        yield CheckResult(missing.subject, "ok", "exists") if exists else missing


def _needed(stack: Stack) -> Iterator[CheckResult]:
    """Yield the result for each needed role if it does not exist."""
    for type_, (role, first, command) in _CREATED_BY_AWS.items():
        if stack.has(type_):
            finding = f"does not exist yet; AWS creates it with the first {first}"
            yield CheckResult(
                role, "warning", finding, f"allow iam:CreateServiceLinkedRole for the caller of `{command}`"
            )
    if any(capacity.spot_percentage > 0 for capacity in stack.capacities.values()):
        yield _missing_spot_role(*_SPOT)
    if stack.has("aws:ec2/spotFleetRequest:SpotFleetRequest"):
        yield _missing_spot_role(*_FLEET)


def _missing_spot_role(role: str, service: str) -> CheckResult:
    advice = f"aws iam create-service-linked-role --aws-service-name {service}"
    return CheckResult(role, "failure", "does not exist: Spot requests are rejected", advice)


def _exists(iam: Any, role: str) -> bool:
    try:
        iam.get_role(RoleName=role)
    except ClientError as error:
        if error.response["Error"]["Code"] == "NoSuchEntity":
            return False
        raise
    return True
