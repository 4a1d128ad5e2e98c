"""Roles of tests: their policies are tried with their own credentials, not with the caller's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from botocore.exceptions import ClientError

from gpu_spot.aws_check.aws_test_bed import AwsTestBed, Falsified
from gpu_spot.preflight.account import ClientOf

PolicyStatement = Mapping[str, Any]
"""A statement of a policy as IAM's JSON values; ``Effect`` is Allow if it is missing."""

_SETTLING_SECONDS: Final = 15.0
"""IAM is eventually consistent (IAM user guide, "Troubleshoot IAM"; the time is *known*)."""
_ASSUME: Final = "sts:AssumeRole"


def document(statements: Sequence[PolicyStatement]) -> str:
    """Return a policy document."""
    return json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **s} for s in statements]})


def trust(service: str, condition: PolicyStatement | None = None, *actions: str) -> PolicyStatement:
    """Return a statement that trusts an AWS service."""
    conditions = {"Condition": condition} if condition else {}
    return {"Principal": {"Service": service}, "Action": [_ASSUME, *actions], **conditions}


def create_role(
    test_bed: AwsTestBed, suffix: str, trusted: PolicyStatement, statements: Sequence[PolicyStatement] = ()
) -> str:
    """Create a role with a trust policy and an inline policy; return its ARN once it can be used."""
    iam, name = test_bed.clients("iam"), test_bed.resource_name(suffix)
    response = test_bed.expect_success(
        lambda: iam.create_role(
            RoleName=name, AssumeRolePolicyDocument=document([trusted]), Tags=test_bed.tags
        )
    )
    if statements:
        iam.put_role_policy(RoleName=name, PolicyName="check", PolicyDocument=document(statements))
    test_bed.clock.sleep(_SETTLING_SECONDS)
    return str(response["Role"]["Arn"])


def acting(test_bed: AwsTestBed, suffix: str, statements: Sequence[PolicyStatement]) -> ClientOf:
    """Create a role with these permissions, and return the clients of a session with it."""
    account = f"arn:{test_bed.partition}:iam::{test_bed.account.id}:root"
    role = create_role(test_bed, suffix, {"Principal": {"AWS": account}, "Action": _ASSUME}, statements)

    def session() -> ClientOf | None:
        try:
            return test_bed.assume(role)
        except ClientError as error:
            if error.response["Error"]["Code"] != "AccessDenied":
                raise
            return None  # not yet visible

    clients = test_bed.wait_until(session, "the role can be assumed", 60)
    test_bed.clock.sleep(_SETTLING_SECONDS)
    return clients


def instance_profile(test_bed: AwsTestBed, suffix: str, statements: Sequence[PolicyStatement]) -> str:
    """Create a role for instances with its instance profile; return the profile's name."""
    iam, name = test_bed.clients("iam"), test_bed.resource_name(suffix)
    create_role(test_bed, suffix, trust("ec2.amazonaws.com"), statements)
    iam.create_instance_profile(InstanceProfileName=name, Tags=test_bed.tags)
    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
    test_bed.clock.sleep(_SETTLING_SECONDS)
    return name


def expect_denied(call: Callable[[], Any], description: str) -> None:
    """Raise ``Falsified`` unless IAM denies the call; another error is raised."""
    try:
        call()
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code.startswith(("AccessDenied", "UnauthorizedOperation")) or code == "403":
            return
        raise
    raise Falsified(f"{description} is allowed")


def expect_allowed(call: Callable[[], Any], description: str) -> Any:
    """Return the result of a call; raise ``Falsified`` if IAM denies it."""
    try:
        return call()
    except ClientError as error:
        if not error.response["Error"]["Code"].startswith(("AccessDenied", "UnauthorizedOperation")):
            raise
        raise Falsified(f"{description} is denied") from None
