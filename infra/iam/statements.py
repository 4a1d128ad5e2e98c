"""Every permission that the stack grants, and nothing else; those of instances in ``instance_statements``.

``ANY_RESOURCE`` marks actions for which the service authorisation reference offers no narrower resource.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi

from infra.schema import OnPremises
from infra.scope import Scope
from lambdas.core import names

ANY_RESOURCE: Final = ("*",)
"""For actions without resource-level permissions."""

_KEY_USE: Final = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey*",
    "kms:ReEncrypt*",
)

_NETWORK: Final = (
    "ec2:DescribeRouteTables",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcAttribute",
    "ec2:DescribeVpcs",
)
"""What the provider calls to look up a VPC (its main route table, too), subnets and security groups."""


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


def assumed_by(service: str) -> list[Statement]:
    """Trust one AWS service, by a name that is the same in every partition."""
    return [Statement("Assume", ["sts:AssumeRole"], principal={"Service": service})]


def assumed_by_fleets(scope: Scope) -> list[Statement]:
    """Trust the Spot Fleet service, on behalf of fleets of this account and region only."""
    return [
        Statement(
            "Assume",
            ["sts:AssumeRole"],
            principal={"Service": "spotfleet.amazonaws.com"},
            conditions={
                "StringEquals": {"aws:SourceAccount": scope.account_id},
                "ArnLike": {"aws:SourceArn": scope.arn("ec2", "spot-fleet-request/sfr-*")},
            },
        )
    ]


def assumed_by_hosts(settings: OnPremises) -> list[Statement]:
    """Trust the hosts that a stack file names; nobody where it names none.

    Roles Anywhere gives the certificate's subject as tags of the session, so the trust must let it tag
    (IAM Roles Anywhere user guide, "The IAM Roles Anywhere trust model").
    """
    found = []
    if settings.trust_anchor:
        conditions: dict[str, dict[str, str]] = {"ArnEquals": {"aws:SourceArn": settings.trust_anchor}}
        if settings.organizational_unit:
            unit = {"aws:PrincipalTag/x509Subject/OU": settings.organizational_unit}
            conditions["StringEquals"] = unit
        found.append(
            Statement(
                "AssumeByCertificate",
                ["sts:AssumeRole", "sts:SetSourceIdentity", "sts:TagSession"],
                principal={"Service": "rolesanywhere.amazonaws.com"},
                conditions=conditions,
            )
        )
    if settings.principals:
        found.append(Statement("Assume", ["sts:AssumeRole"], principal={"AWS": list(settings.principals)}))
    return found


def assumed_by_flow_logs(scope: Scope) -> list[Statement]:
    """Trust the flow logs service, on behalf of flow logs of this account and region only."""
    return [
        Statement(
            "Assume",
            ["sts:AssumeRole"],
            principal={"Service": "vpc-flow-logs.amazonaws.com"},
            conditions={
                "StringEquals": {"aws:SourceAccount": scope.account_id},
                "ArnLike": {"aws:SourceArn": scope.arn("ec2", "vpc-flow-log/*")},
            },
        )
    ]


def flow_logs(log_group_arn: pulumi.Input[str]) -> list[Statement]:
    """What the flow logs service may do: write into one log group."""
    return [
        Statement(
            "WriteLog",
            ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
            [log_group_arn, pulumi.Output.concat(log_group_arn, ":*")],
        )
    ]


def assumed_by_pull_requests(
    provider_arn: pulumi.Input[str], issuer: str, audience: str, repository: str
) -> list[Statement]:
    """Trust GitHub's tokens for pull requests of one repository; a fork's tokens name the fork.

    Repositories made, renamed or moved since July 2026 carry ids in their subject, ``owner@id/name@id``
    (GitHub, "OpenID Connect reference", immutable subject claims). A ``repository`` that is given with ids is
    trusted by them alone.
    """
    forms = [repository]
    if "@" not in repository:
        # An id holds no colon and no name holds an at sign: the pattern fits no other repository's claim.
        forms.append("/".join(f"{part}@*" for part in repository.split("/")))
    return [
        Statement(
            "Assume",
            ["sts:AssumeRoleWithWebIdentity"],
            principal={"Federated": provider_arn},
            conditions={
                "StringEquals": {f"{issuer}:aud": audience},
                "StringLike": {f"{issuer}:sub": [f"repo:{form}:pull_request" for form in forms]},
            },
        )
    ]


def previews(
    scope: Scope,
    state_bucket: str | None,
    *,
    images: Sequence[str],
    snapshots: bool,
    brokers: bool,
    existing_network: bool,
    interfaces: bool,
    cluster: str | None,
) -> list[Statement]:
    """What a preview needs: image parameters, what it looks up, the state if it is in a bucket.

    ``images`` are parameters of this account, ``cluster`` is one of EKS that is there. A preview takes no
    lock of the state: Pulumi's DIY backend locks for what changes it alone.
    """
    public = pulumi.Output.concat("arn:", scope.partition, ":ssm:", scope.region, "::parameter/aws/service/*")
    own = [scope.arn("ssm", f"parameter{path}") for path in images]
    network = _NETWORK if existing_network else ["ec2:DescribeVpcs"]
    allowed = [
        Statement("ReadImages", ["ssm:GetParameter"], [public, *own]),
        Statement("FindNetwork", network, ANY_RESOURCE),
    ]
    if snapshots:
        allowed.append(Statement("FindSnapshots", ["ec2:DescribeSnapshots"], ANY_RESOURCE))
    if brokers:
        allowed.append(Statement("DrawPasswords", ["secretsmanager:GetRandomPassword"], ANY_RESOURCE))
    if interfaces:
        allowed.append(Statement("FindServices", ["ec2:DescribeVpcEndpointServices"], ANY_RESOURCE))
    if cluster is not None:
        found = [scope.arn("eks", f"cluster/{cluster}")]
        allowed.append(Statement("FindCluster", ["eks:DescribeCluster"], found))
    if state_bucket is None:
        return allowed
    arn = pulumi.Output.concat("arn:", scope.partition, ":s3:::", state_bucket)
    return [
        *allowed,
        Statement("ListState", ["s3:ListBucket"], [arn]),
        Statement("ReadState", ["s3:GetObject"], [pulumi.Output.concat(arn, "/.pulumi/*")]),
    ]


def fleet(instance_role_arn: pulumi.Input[str]) -> list[Statement]:
    """What narrows AWS's tagging policy for a Spot Fleet, which lets it hand any role to instances."""
    return [
        Statement(
            "HandOutOneRole",
            ["iam:PassRole"],
            effect="Deny",
            other_resources=[instance_role_arn],
        )
    ]


def controller(
    scope: Scope,
    *,
    queue_arn: pulumi.Input[str],
    memory_arn: pulumi.Input[str],
    registry_arn: pulumi.Input[str],
    log_group_arn: pulumi.Input[str],
    fleets: bool,
    blocks: bool,
    zones: bool,
) -> list[Statement]:
    """What the controller may do: hear, remember, look, and move the capacity of this stack's groups.

    ``fleets``: whether some of the groups are Spot Fleets; ``blocks``: whether some have a Capacity Block;
    ``zones``: whether some are asked for on-demand in one zone.
    """
    allowed = [
        write_log(log_group_arn),
        Statement(
            "ReceiveWakeUps",
            [
                "sqs:ReceiveMessage",
                "sqs:DeleteMessage",
                "sqs:ChangeMessageVisibility",
                "sqs:GetQueueAttributes",
            ],
            [queue_arn],
        ),
        Statement("WakeItself", ["sqs:SendMessage"], [queue_arn]),
        read_groups(scope),
        Statement("Remember", ["dynamodb:GetItem"], [memory_arn]),
        # Beside its items lie those of the health checker and the scaler, `<group>@…`.
        Statement("KeepMemory", ["dynamodb:PutItem"], [memory_arn], keys_unlike("*@*")),
        Statement("ReadWorkers", ["dynamodb:Query"], [registry_arn]),
        Statement(
            "Observe",
            [
                "autoscaling:DescribeAutoScalingGroups",
                "autoscaling:DescribeScalingActivities",
                "ec2:DescribeInstances",
                "ec2:DescribeSpotInstanceRequests",
                "ec2:DescribeSpotPriceHistory",
            ],
            ANY_RESOURCE,
        ),
        Statement(
            "MoveCapacity",
            [
                "autoscaling:SetDesiredCapacity",
                "autoscaling:SetInstanceProtection",
                "autoscaling:TerminateInstanceInAutoScalingGroup",
            ],
            [_own_groups(scope)],
            _tagged({names.TAG_STACK: scope.stack}),
        ),
    ]
    allowed += with_key(scope, ["dynamodb", "lambda", "sqs"])
    if blocks:
        allowed.append(Statement("ReadBlocks", ["ec2:DescribeCapacityReservations"], ANY_RESOURCE))
    if zones:
        allowed += _launch_by_zone(scope)
    return [*allowed, *_move_fleets(scope)] if fleets else allowed


def _launch_by_zone(scope: Scope) -> list[Statement]:
    """What LaunchInstances asks of its caller; of launch templates only the stack's own.

    Source: Auto Scaling guide, "Launching instances with synchronous provisioning", prerequisites. To launch
    by itself the controller would need ``ec2:RunInstances`` and ``iam:PassRole``, too, which it has not.
    """
    return [
        Statement(
            "LaunchByZone",
            ["autoscaling:LaunchInstances"],
            [_own_groups(scope)],
            _tagged({names.TAG_STACK: scope.stack}),
        ),
        Statement(
            "LaunchFromOwnTemplates",
            ["ec2:CreateFleet"],
            [scope.arn("ec2", "launch-template/*")],
            _tagged({names.TAG_STACK: scope.stack}),
        ),
        Statement(
            "MakeFleets",
            ["ec2:CreateFleet"],
            [scope.arn("ec2", f"{kind}/*") for kind in ("fleet", "instance", "subnet", "volume")]
            + [pulumi.Output.concat("arn:", scope.partition, ":ec2:", scope.region, "::image/*")],
            # What has no name or tag of ours; a template, which has, is part of every such call.
            {"StringEquals": {"ec2:Region": scope.region}},
        ),
        Statement("ReadTemplates", ["ec2:DescribeLaunchTemplateVersions"], ANY_RESOURCE),
    ]


def _move_fleets(scope: Scope) -> list[Statement]:
    return [
        Statement(
            "ObserveFleets",
            [
                "ec2:DescribeSpotFleetInstances",
                "ec2:DescribeSpotFleetRequestHistory",
                "ec2:DescribeSpotFleetRequests",
            ],
            ANY_RESOURCE,
        ),
        Statement(
            "MoveFleets",
            ["ec2:ModifySpotFleetRequest"],
            [scope.arn("ec2", "spot-fleet-request/*")],
            _tagged({names.TAG_STACK: scope.stack}),
        ),
        Statement(
            "EndFleetInstances",
            ["ec2:TerminateInstances"],
            [scope.arn("ec2", "instance/*")],
            _tagged({names.TAG_STACK: scope.stack, names.TAG_SIDE: "primary"}),
        ),
    ]


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


def read_groups(scope: Scope) -> Statement:
    """What each function that looks after groups may read: all parameters of the stack's groups."""
    root = names.parameter_root(scope.stack)
    places = [scope.arn("ssm", f"parameter{root}"), scope.arn("ssm", f"parameter{root}/*")]
    return Statement("ReadGroups", ["ssm:GetParametersByPath"], places)


def write_log(log_group_arn: pulumi.Input[str]) -> Statement:
    """What every function may do: write into its own log group."""
    return Statement(
        "WriteLog",
        ["logs:CreateLogStream", "logs:PutLogEvents"],
        [pulumi.Output.concat(log_group_arn, ":*")],
    )


def queue(queue_arn: pulumi.Input[str], rule_arns: Sequence[pulumi.Input[str]]) -> list[Statement]:
    """A queue's own policy: these EventBridge rules may send, and nobody may without TLS."""
    return [
        Statement(
            "EventBridgeSends",
            ["sqs:SendMessage"],
            [queue_arn],
            {"ArnEquals": {"aws:SourceArn": list(rule_arns)}},
            principal={"Service": "events.amazonaws.com"},
        ),
        Statement(
            "OnlyOverTls",
            ["sqs:SendMessage", "sqs:ReceiveMessage"],
            [queue_arn],
            {"Bool": {"aws:SecureTransport": "false"}},
            principal="*",
            effect="Deny",
        ),
    ]


def topic(scope: Scope, topic_arn: pulumi.Input[str]) -> list[Statement]:
    """A topic's own policy: this account's alarms and budgets may publish, and nobody may without TLS."""
    return [
        Statement(
            "AlarmsPublish",
            ["sns:Publish"],
            [topic_arn],
            {"StringEquals": {"aws:SourceAccount": scope.account_id}},
            principal={"Service": ["budgets.amazonaws.com", "cloudwatch.amazonaws.com"]},
        ),
        Statement(
            "OnlyOverTls",
            ["sns:Publish"],
            [topic_arn],
            {"Bool": {"aws:SecureTransport": "false"}},
            principal="*",
            effect="Deny",
        ),
    ]


def file_system(scope: Scope, file_system_arn: pulumi.Input[str]) -> list[Statement]:
    """A file system's own policy: this account's roles may mount through a mount target, and only over TLS.

    Without an explicit Allow every client in the VPC has full access; a Deny alone would not change that.
    """
    return [
        Statement(
            "MountThroughMountTargets",
            ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"],
            [file_system_arn],
            {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}},
            principal={
                "AWS": pulumi.Output.concat("arn:", scope.partition, ":iam::", scope.account_id, ":root")
            },
        ),
        Statement(
            "OnlyOverTls",
            [
                "elasticfilesystem:ClientMount",
                "elasticfilesystem:ClientRootAccess",
                "elasticfilesystem:ClientWrite",
            ],
            [file_system_arn],
            {"Bool": {"aws:SecureTransport": "false"}},
            principal={"AWS": "*"},
            effect="Deny",
        ),
    ]


def bucket(bucket_arn: pulumi.Input[str]) -> list[Statement]:
    """A bucket's own policy: nobody may do anything without TLS."""
    return [
        Statement(
            "OnlyOverTls",
            ["s3:*"],
            [bucket_arn, pulumi.Output.concat(bucket_arn, "/*")],
            {"Bool": {"aws:SecureTransport": "false"}},
            principal="*",
            effect="Deny",
        )
    ]


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


def _own_groups(scope: Scope) -> pulumi.Output[str]:
    # The middle part is a UUID that AWS draws; the name carries the stack's prefix.
    return scope.arn("autoscaling", f"autoScalingGroup:*:autoScalingGroupName/{scope.prefix}*")


def _tagged(tags: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {"StringEquals": {f"aws:ResourceTag/{key}": value for key, value in tags.items()}}
