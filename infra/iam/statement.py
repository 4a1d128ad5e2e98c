"""A statement of an IAM policy, and those that several roles share.

``ANY_RESOURCE`` marks actions for which the service authorisation reference offers no narrower resource.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi

from contracts import names
from infra.scope import Scope

ANY_RESOURCE: Final = ("*",)
"""For actions without resource-level permissions."""


_KEY_USE: Final = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey*",
    "kms:ReEncrypt*",
)


@dataclass(frozen=True)
class Statement:
    """One statement of an IAM policy. ``principal`` only in resource policies.

    ``other_resources`` stand for all but these (``NotResource``), in place of ``resources``.
    """

    sid: str
    actions: Sequence[str]
    resources: Sequence[pulumi.Input[str]] = ()
    conditions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    principal: Mapping[str, Any] | str | None = None
    effect: str = "Allow"
    other_resources: Sequence[pulumi.Input[str]] = ()

    def rendered(self) -> dict[str, Any]:
        """Return the statement as IAM's JSON wants it; outputs stay outputs."""
        parts: dict[str, Any] = {"Sid": self.sid, "Effect": self.effect, "Action": list(self.actions)}
        if self.principal is not None:
            parts["Principal"] = self.principal
        if self.resources:
            parts["Resource"] = list(self.resources)
        if self.other_resources:
            parts["NotResource"] = list(self.other_resources)
        if self.conditions:
            parts["Condition"] = self.conditions
        return parts


def document(statements: Sequence[Statement]) -> pulumi.Output[str]:
    """Return a policy document as JSON."""
    return pulumi.Output.json_dumps(
        {"Version": "2012-10-17", "Statement": [s.rendered() for s in statements]}
    )


def write_log(log_group_arn: pulumi.Input[str]) -> Statement:
    """What every function may do: write into its own log group."""
    return Statement(
        "WriteLog",
        ["logs:CreateLogStream", "logs:PutLogEvents"],
        [pulumi.Output.concat(log_group_arn, ":*")],
    )


def read_groups(scope: Scope) -> Statement:
    """What each function that looks after groups may read: all parameters of the stack's groups."""
    root = names.parameter_root(scope.stack)
    places = [scope.arn("ssm", f"parameter{root}"), scope.arn("ssm", f"parameter{root}/*")]
    return Statement("ReadGroups", ["ssm:GetParametersByPath"], places)


def keys_like(pattern: str) -> dict[str, dict[str, Any]]:
    """Return the conditions of a statement on items whose partition key is like that."""
    return {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": [pattern]},
        # A request without a key would fit all values of none.
        "Null": {"dynamodb:LeadingKeys": "false"},
    }


def keys_unlike(pattern: str) -> dict[str, dict[str, Any]]:
    """Return the conditions of a statement on items whose partition key is not like that."""
    return {
        "ForAllValues:StringNotLike": {"dynamodb:LeadingKeys": [pattern]},
        "Null": {"dynamodb:LeadingKeys": "false"},
    }


def with_key(scope: Scope, services: Sequence[str]) -> list[Statement]:
    """What a role may do with the customer's key: use it, through ``services`` alone. Nothing without a key.

    The actions are those of a key's users (KMS guide, "Default key policy").
    """
    if scope.kms_key_arn is None:
        return []
    return [Statement("UseKey", _KEY_USE, [scope.kms_key_arn], _through(scope, services))]


def lend_key(scope: Scope) -> list[Statement]:
    """What a role needs to make and attach volumes under the customer's key. Nothing without a key.

    EBS decrypts for the instance by a grant (EBS user guide, "Requirements for Amazon EBS encryption").
    """
    if scope.kms_key_arn is None:
        return []
    conditions = {**_through(scope, ["ec2"]), "Bool": {"kms:GrantIsForAWSResource": "true"}}
    return [Statement("LendKeyToVolumes", ["kms:CreateGrant"], [scope.kms_key_arn], conditions)]


def _through(scope: Scope, services: Sequence[str]) -> dict[str, Any]:
    # In China the names go on with .cn.
    return {"StringLike": {"kms:ViaService": [f"{name}.{scope.region}.amazonaws.com*" for name in services]}}
