"""A statement of an IAM policy, and statements that several roles share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi

from contracts import names
from infra.schema.access import CommandPermission
from infra.scope import Scope, check_size

ANY_RESOURCE: Final = ("*",)
"""For actions without resource-level permissions. Source: Service Authorization Reference."""

_KEY_USE: Final = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)
"""What AWS services do with a key for the role. Source: EBS user guide, "How Amazon EBS encryption works";
DynamoDB developer guide, "Encryption at rest: usage notes". ``kms:ReEncrypt*`` is these two actions.
"""


@dataclass(frozen=True)
class Statement:
    """A statement of an IAM policy.

    ``principal`` is for resource-based policies. ``not_resources`` (``NotResource``) replaces ``resources``.
    """

    sid: str
    actions: Sequence[str]
    resources: Sequence[pulumi.Input[str]] = ()
    conditions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    principal: Mapping[str, Any] | str | None = None
    effect: str = "Allow"
    not_resources: Sequence[pulumi.Input[str]] = ()

    def rendered(self) -> dict[str, Any]:
        """Return the statement in IAM's JSON form; Pulumi outputs are kept."""
        parts: dict[str, Any] = {"Sid": self.sid, "Effect": self.effect, "Action": list(self.actions)}
        if self.principal is not None:
            parts["Principal"] = self.principal
        if self.resources:
            parts["Resource"] = list(self.resources)
        if self.not_resources:
            parts["NotResource"] = list(self.not_resources)
        if self.conditions:
            parts["Condition"] = self.conditions
        return parts


def document(statements: Sequence[Statement]) -> pulumi.Output[str]:
    """Return a policy document as JSON; an output raises ``SettingsError`` if it is too large for a role.

    Only the trust of an on-premises host grows with the stack file: with its principals.
    """
    text = pulumi.Output.json_dumps(
        {"Version": "2012-10-17", "Statement": [s.rendered() for s in statements]}
    )
    # IAM user guide, "IAM and AWS STS quotas": trust, and inline policies of a role, without white space.
    policy, limit = f"the policy of {statements[0].sid}", 10_240
    remedy = "divide the entries between two stacks"
    if statements[0].principal is not None and not statements[0].resources:
        limit, remedy = 2_048, "list fewer or shorter onPremises.hosts[].principals"
    text.apply(lambda content: check_size(policy, len("".join(content.split())), limit, "characters", remedy))
    return text


def permitted(permissions: Iterable[CommandPermission]) -> list[Statement]:
    """Return the ``permissions`` of an entry of the stack file."""
    return [
        Statement(f"OfCommand{number}", item.actions, item.resources, item.conditions)
        for number, item in enumerate(permissions, 1)
    ]


def write_log(log_group_arn: pulumi.Input[str]) -> Statement:
    """Allow a function to write to its log group."""
    return Statement(
        "WriteLog", ["logs:CreateLogStream", "logs:PutLogEvents"], [pulumi.Output.concat(log_group_arn, ":*")]
    )


def read_groups(scope: Scope) -> Statement:
    """Allow a function to read all parameters of the stack's groups."""
    root = names.parameter_root(scope.stack)
    resources = [scope.arn("ssm", f"parameter{root}"), scope.arn("ssm", f"parameter{root}/*")]
    return Statement("ReadGroups", ["ssm:GetParametersByPath"], resources)


def keys_like(pattern: str) -> dict[str, dict[str, Any]]:
    """Return conditions for items whose partition key matches the pattern."""
    return {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": [pattern]},
        # ForAllValues is true for a request without a key.
        "Null": {"dynamodb:LeadingKeys": "false"},
    }


def keys_unlike(pattern: str) -> dict[str, dict[str, Any]]:
    """Return conditions for items whose partition key does not match the pattern."""
    return {
        "ForAllValues:StringNotLike": {"dynamodb:LeadingKeys": [pattern]},
        "Null": {"dynamodb:LeadingKeys": "false"},
    }


def use_key(scope: Scope, services: Sequence[str], actions: Sequence[str] = _KEY_USE) -> list[Statement]:
    """Allow using the customer's key through ``services`` only; empty without a key.

    Source: KMS guide, "Default key policy", key users.
    """
    if scope.kms_key_arn is None:
        return []
    return [Statement("UseKey", actions, [scope.kms_key_arn], _via_services(scope, services))]


def grant_key(scope: Scope) -> list[Statement]:
    """Allow creating and attaching volumes encrypted with the customer's key; empty without a key.

    EBS decrypts for the instance with a grant (EBS user guide, "Requirements for Amazon EBS encryption").
    """
    if scope.kms_key_arn is None:
        return []
    conditions = {**_via_services(scope, ["ec2"]), "Bool": {"kms:GrantIsForAWSResource": "true"}}
    return [Statement("LendKeyToVolumes", ["kms:CreateGrant"], [scope.kms_key_arn], conditions)]


def _via_services(scope: Scope, services: Sequence[str]) -> dict[str, Any]:
    # The partition's domain follows; the region is in one partition.
    return {"StringLike": {"kms:ViaService": [f"{name}.{scope.region}.*" for name in services]}}
