"""Who may reach what: ingress and IAM."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from policy.rules.model import UNKNOWN, Outside, PolicyRule, RuleSettings, Subject

_POLICIES: Final = {
    "BucketPolicy": "policy",
    "FileSystemPolicy": "policy",
    "Policy": "policy",
    "QueuePolicy": "policy",
    "Role": "assumeRolePolicy",
    "RolePolicy": "policy",
    "TopicPolicy": "policy",
}
"""Kinds whose input holds an IAM policy."""

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
"""Actions that AWS narrows to no resource (Service Authorization Reference): ``*`` is all that there is."""

_ALLOWED_ON_ALL: Final = frozenset(
    {
        # The Systems Manager guide's own least role for Session Manager grants it on ``*``.
        "ssm:UpdateInstanceInformation",
        # They only read; the reference knows them by fleet, nobody has tried that on AWS.
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
"""What a function in a network needs on ``*``: AWS's own policy AWSLambdaVPCAccessExecutionRole."""


def _open_to_all(subject: Subject, _settings: RuleSettings, _facts: Outside) -> Iterator[str]:
    for cidr in _sources(subject):
        try:
            network = ipaddress.ip_network(cidr, strict=False)
        except ValueError:
            continue  # not known yet
        if network.prefixlen == 0:
            yield f"ingress from {cidr}, allowed: a network of your own or a security group"


def _sources(subject: Subject) -> Iterator[str]:
    inputs = subject.inputs
    rules: list[Mapping[str, Any]] = []
    if subject.kind in ("SecurityGroup", "DefaultSecurityGroup"):
        given = inputs.get("ingress") or ()
        rules = [] if isinstance(given, str) else list(given)
    elif subject.kind == "SecurityGroupIngressRule" or (
        subject.kind == "SecurityGroupRule" and inputs.get("type") == "ingress"
    ):
        rules = [inputs]
    for rule in rules:
        if isinstance(rule, Mapping):
            yield from (str(rule[key]) for key in ("cidrIpv4", "cidrIpv6") if rule.get(key))
            for key in ("cidrBlocks", "ipv6CidrBlocks"):
                yield from (str(one) for one in _list(rule.get(key)))


def _wildcards(subject: Subject, _settings: RuleSettings, _facts: Outside) -> Iterator[str]:
    text = subject.inputs.get(_POLICIES.get(subject.kind, ""), UNKNOWN)
    if text == UNKNOWN:
        return
    document = json.loads(text) if isinstance(text, str) else text
    for statement in _list(document.get("Statement")):
        if statement.get("Effect") == "Allow":
            where = statement.get("Sid") or "a statement without Sid"
            yield from (f"{where}: {what}" for what in _too_wide(subject.kind, statement))


def _too_wide(kind: str, statement: Mapping[str, Any]) -> Iterator[str]:
    for key in ("NotAction", "NotResource", "NotPrincipal"):
        if key in statement:
            yield f"Allow with {key}, allowed: what is meant, by name"
    actions = _list(statement.get("Action"))
    for action in actions:
        if "*" in action:
            yield f"action {action}, allowed: actions by name"
    principals = statement.get("Principal")
    everybody = principals == "*" or (isinstance(principals, Mapping) and "*" in _list(principals.get("AWS")))
    if everybody and not statement.get("Condition"):
        yield "principal *, allowed: one by name, or a condition"
    # The resource of a policy that hangs on a resource is that one.
    if kind in ("Policy", "RolePolicy") and "*" in _list(statement.get("Resource")):
        narrower = sorted(set(actions) - WITHOUT_RESOURCES - _ALLOWED_ON_ALL)
        if narrower and not LAMBDA_IN_A_NETWORK.issuperset(actions):
            yield f"resource * for {', '.join(narrower)}, allowed: ARNs"


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
