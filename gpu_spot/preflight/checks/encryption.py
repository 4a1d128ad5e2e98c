"""The key that encrypts volumes.

Source: Auto Scaling guide, "Required AWS KMS key policy for use with encrypted volumes": with a customer
managed key its service-linked role needs the key's policy, or a grant. Instances that may not use it end as
they start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.remark import Remark
from gpu_spot.preflight.stack import Stack

NAME: Final = "key of the volumes"

_AWS_OWN: Final = "alias/aws/ebs"


def look(stack: Stack, account: Account) -> Iterator[Remark]:
    """See which keys the volumes take, and whether those who launch may use them."""
    for key in sorted(_named(stack)) or [account.clients("ec2").get_ebs_default_kms_key_id()["KmsKeyId"]]:
        yield from _of_key(key, stack, account)


def _named(stack: Stack) -> set[str]:
    """Return the keys that launch templates name; without any, EC2 takes the account's default."""
    mappings = [
        mapping.get("ebs", {})
        for template in stack.of_type("aws:ec2/launchTemplate:LaunchTemplate")
        for mapping in template.get("blockDeviceMappings", ())
    ]
    return {ebs["kmsKeyId"] for ebs in mappings if ebs.get("kmsKeyId")}


def _of_key(key: str, stack: Stack, account: Account) -> Iterator[Remark]:
    if key.endswith(_AWS_OWN):
        yield Remark(key, "ok", "AWS's own")
        return
    kms = account.clients("kms")
    known = kms.describe_key(KeyId=key)["KeyMetadata"]
    if known["KeyManager"] == "AWS":
        yield Remark(key, "ok", "AWS's own")
    elif not known["Enabled"]:
        yield Remark(key, "failure", f"it is {known['KeyState']}", "enable it, or name another")
    else:
        for role in _launching(stack):
            yield _judged(kms, known["Arn"], role)


def _launching(stack: Stack) -> Iterator[str]:
    if stack.has("aws:autoscaling/group:Group"):
        yield "AWSServiceRoleForAutoScaling"
    if stack.has("aws:ec2/spotFleetRequest:SpotFleetRequest"):
        yield "AWSServiceRoleForEC2SpotFleet"


def _judged(kms: Any, key: str, role: str) -> Remark:
    subject = f"{key} for {role}"
    policy: str = kms.get_key_policy(KeyId=key, PolicyName="default")["Policy"]
    grants = kms.get_paginator("list_grants").paginate(KeyId=key)
    granted = any(
        grant.get("GranteePrincipal", "").endswith(f"/{role}") for page in grants for grant in page["Grants"]
    )
    if granted or f"/{role}" in policy:
        return Remark(subject, "ok", "its policy or a grant names the role")
    found = "a customer's key, and neither its policy nor a grant names the role"
    return Remark(subject, "failure", found, "allow the role in the key's policy, with kms:CreateGrant")
