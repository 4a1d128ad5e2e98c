"""The KMS key of the volumes.

Source: Auto Scaling guide, "Required AWS KMS key policy for use with encrypted volumes": the service-linked
role needs a customer managed key's policy or a grant. Instances without access to the key terminate at
launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.stack import Stack

_AWS_MANAGED: Final = "alias/aws/ebs"
_LAUNCHING_ROLES: Final = {
    "aws:autoscaling/group:Group": "AWSServiceRoleForAutoScaling",
    "aws:ec2/spotFleetRequest:SpotFleetRequest": "AWSServiceRoleForEC2SpotFleet",
}


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Check the keys of the volumes and the access of the launching roles."""
    for key in sorted(_named(stack)) or [account.clients("ec2").get_ebs_default_kms_key_id()["KmsKeyId"]]:
        yield from (replace(result, key="kmsKeyArn") for result in _check_key(key, stack, account))


def _named(stack: Stack) -> set[str]:
    """Return the keys of the launch templates; without one, EC2 uses the account's default key."""
    mappings = [
        mapping.get("ebs", {})
        for template in stack.of_type("aws:ec2/launchTemplate:LaunchTemplate")
        for mapping in template.get("blockDeviceMappings", ())
    ]
    return {ebs["kmsKeyId"] for ebs in mappings if ebs.get("kmsKeyId")}


def _check_key(key: str, stack: Stack, account: Account) -> Iterator[CheckResult]:
    if key.endswith(_AWS_MANAGED):
        yield CheckResult(key, "ok", "AWS managed")
        return
    kms = account.clients("kms")
    metadata = kms.describe_key(KeyId=key)["KeyMetadata"]
    if metadata["KeyManager"] == "AWS":
        yield CheckResult(key, "ok", "AWS managed")
    elif not metadata["Enabled"]:
        finding = f"key state is {metadata['KeyState']}"
        yield CheckResult(key, "failure", finding, "enable the key, or use another")
    else:
        for type_, role in _LAUNCHING_ROLES.items():
            if stack.has(type_):
                yield _check_grant(kms, metadata["Arn"], role)


def _check_grant(kms: Any, key: str, role: str) -> CheckResult:
    subject = f"{key} for {role}"
    policy: str = kms.get_key_policy(KeyId=key, PolicyName="default")["Policy"]
    grants = kms.get_paginator("list_grants").paginate(KeyId=key)
    granted = any(
        grant.get("GranteePrincipal", "").endswith(f"/{role}") for page in grants for grant in page["Grants"]
    )
    if granted or f"/{role}" in policy:
        return CheckResult(subject, "ok", "the key policy or a grant names the role")
    finding = "customer managed key without the role in its policy or grants"
    advice = "allow the role in the key's policy, with kms:CreateGrant"
    return CheckResult(subject, "failure", finding, advice)
