"""Rules for network ingress and IAM policies."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from policy.rules.model import UNKNOWN, ExternalFacts, PolicyRule, RuleSettings, Subject

_POLICIES: Final = {
    "BucketPolicy": "policy",
    "FileSystemPolicy": "policy",
    "Policy": "policy",
    "QueuePolicy": "policy",
    "Role": "assumeRolePolicy",
    "RolePolicy": "policy",
    "TopicPolicy": "policy",
}
"""Resource kinds with an IAM policy, and the input that holds it."""

WITHOUT_RESOURCES: Final = frozenset(
    {
        *("autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeAutoScalingInstances"),
        *("autoscaling:DescribeScalingActivities", "cloudwatch:GetMetricData", "cloudwatch:PutMetricData"),
        *("ec2:DescribeAvailabilityZones", "ec2:DescribeCapacityReservations", "ec2:DescribeImages"),
        *("ec2:DescribeInstances", "ec2:DescribeInstanceTypes", "ec2:DescribeLaunchTemplateVersions"),
        *("ec2:DescribeNetworkInterfaces", "ec2:DescribeSnapshots", "ec2:DescribeSubnets"),
        *("ec2:DescribeSpotFleetRequests", "ec2:DescribeSpotInstanceRequests"),
        *("ec2:DescribeSpotPriceHistory", "ec2:DescribeTags", "ec2:DescribeVolumes"),
        *("ec2:DescribeVolumesModifications", "ecr:GetAuthorizationToken"),
        *("ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel"),
        *("ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel"),
        *("xray:PutTelemetryRecords", "xray:PutTraceSegments"),
    }
)
"""Actions without resource-level permissions. Source: AWS Service Authorization Reference."""

_ALLOWED_ON_ALL: Final = frozenset(
    {
        # As in the minimal role for Session Manager. Source: Systems Manager user guide.
        "ssm:UpdateInstanceInformation",
        # Read-only. The reference lists fleets as resources; untested on AWS.
        *("ec2:DescribeSpotFleetInstances", "ec2:DescribeSpotFleetRequestHistory"),
    }
)
LAMBDA_IN_A_NETWORK: Final = frozenset(
    f"ec2:{action}"
    for action in (
        *("AssignPrivateIpAddresses", "CreateNetworkInterface", "DeleteNetworkInterface"),
        *("DescribeNetworkInterfaces", "DescribeSubnets", "UnassignPrivateIpAddresses"),
    )
)
"""Actions of a function in a VPC, as in AWS's managed policy AWSLambdaVPCAccessExecutionRole."""


def _open_to_all(subject: Subject, _settings: RuleSettings, _facts: ExternalFacts) -> Iterator[str]:
    for cidr in _sources(subject):
        try:
            network = ipaddress.ip_network(cidr, strict=False)
        except ValueError:
            continue  # unknown in a preview
        if network.prefixlen == 0:
            yield f"ingress from {cidr}, allowed: a network of your own or a security group"


def _sources(subject: Subject) -> Iterator[str]:
    inputs = subject.inputs
    rules: list[Mapping[str, Any]] = []
    if subject.kind in ("SecurityGroup", "DefaultSecurityGroup"):
        ingress = inputs.get("ingress") or ()
        rules = [] if isinstance(ingress, str) else list(ingress)
    elif subject.kind == "SecurityGroupIngressRule" or (
        subject.kind == "SecurityGroupRule" and inputs.get("type") == "ingress"
    ):
        rules = [inputs]
    for rule in rules:
        if isinstance(rule, Mapping):
            yield from (str(rule[key]) for key in ("cidrIpv4", "cidrIpv6") if rule.get(key))
            for key in ("cidrBlocks", "ipv6CidrBlocks"):
                yield from (str(cidr) for cidr in _list(rule.get(key)))


def _wildcards(subject: Subject, _settings: RuleSettings, _facts: ExternalFacts) -> Iterator[str]:
    text = subject.inputs.get(_POLICIES.get(subject.kind, ""), UNKNOWN)
    if text == UNKNOWN:
        return
    document = json.loads(text) if isinstance(text, str) else text
    for statement in _list(document.get("Statement")):
        if statement.get("Effect") == "Allow":
            statement_id = statement.get("Sid") or "statement without Sid"
            yield from (f"{statement_id}: {message}" for message in _too_wide(subject.kind, statement))


def _too_wide(kind: str, statement: Mapping[str, Any]) -> Iterator[str]:
    for key in ("NotAction", "NotResource", "NotPrincipal"):
        if key in statement:
            yield f"Allow with {key}, allowed: Action, Resource, Principal"
    actions = _list(statement.get("Action"))
    for action in actions:
        if "*" in action:
            yield f"action {action}, allowed: actions by name"
    principals = statement.get("Principal")
    is_public = principals == "*" or (isinstance(principals, Mapping) and "*" in _list(principals.get("AWS")))
    if is_public and not statement.get("Condition"):
        yield "principal *, allowed: named principals, or a condition"
    # A resource-based policy applies to its own resource.
    if kind in ("Policy", "RolePolicy") and "*" in _list(statement.get("Resource")):
        with_resources = sorted(set(actions) - WITHOUT_RESOURCES - _ALLOWED_ON_ALL)
        if with_resources and not LAMBDA_IN_A_NETWORK.issuperset(actions):
            yield f"resource * for {', '.join(with_resources)}, allowed: ARNs"


def _list(value: Any) -> list[Any]:
    if value is None or value == UNKNOWN:
        return []
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str | Mapping) else [value]


RULES: Final = (
    PolicyRule(
        "no-ingress-from-anywhere", "No security group admits the whole internet.", "mandatory", _open_to_all
    ),
    PolicyRule("no-wildcards", "Policies name actions, resources and principals.", "mandatory", _wildcards),
)
