"""The roles by which AWS's services act in an account.

Source: EC2 user guide, "Service-linked role for Spot Instance requests" and "Spot Fleet permissions": only
the console creates the roles of spot by itself, whoever uses the API "must first ensure that this role
exists". Auto Scaling guide, "Service-linked roles": the first group makes Auto Scaling's. Amazon MQ guide,
"Using service-linked roles": the first broker makes Amazon MQ's, which writes the logs. That spot launches
of a group fail without the role is from others' logs (AuthFailure.ServiceLinkedRoleCreationNotPermitted).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.remark import Remark
from gpu_spot.preflight.stack import Stack

NAME: Final = "service-linked roles"

_SPOT: Final = ("AWSServiceRoleForEC2Spot", "spot.amazonaws.com")
_FLEET: Final = ("AWSServiceRoleForEC2SpotFleet", "spotfleet.amazonaws.com")
_MADE_WITH_THE_FIRST: Final = {
    "aws:autoscaling/group:Group": ("AWSServiceRoleForAutoScaling", "group"),
    "aws:mq/broker:Broker": ("AWSServiceRoleForAmazonMQ", "broker"),
}


def look(stack: Stack, account: Account) -> Iterator[Remark]:
    """Look for each role that the stack's groups need."""
    iam = account.clients("iam")
    for lacking in _needed(stack):
        is_there = _is_there(iam, lacking.subject)
        yield Remark(lacking.subject, "ok", "is there") if is_there else lacking


def _needed(stack: Stack) -> Iterator[Remark]:
    """Yield what to say of each role where it is not there."""
    for type_, (role, first) in _MADE_WITH_THE_FIRST.items():
        if stack.has(type_):
            found = f"is not there yet; AWS makes it with the first {first}"
            yield Remark(role, "warning", found, "let whoever runs `up` iam:CreateServiceLinkedRole")
    if any(capacity.spot_percentage > 0 for capacity in stack.settings.capacities.values()):
        yield _refused(*_SPOT)
    if stack.has("aws:ec2/spotFleetRequest:SpotFleetRequest"):
        yield _refused(*_FLEET)


def _refused(role: str, service: str) -> Remark:
    advice = f"aws iam create-service-linked-role --aws-service-name {service}"
    return Remark(role, "failure", "is not there: spot requests are refused", advice)


def _is_there(iam: Any, role: str) -> bool:
    try:
        iam.get_role(RoleName=role)
    except ClientError as error:
        if error.response["Error"]["Code"] == "NoSuchEntity":
            return False
        raise
    return True
