"""Resources of the stacks, validated by external tools.

cfn-lint has AWS's resource schemas by region, policy-sentry the Service Authorization Reference.
"""

from __future__ import annotations

import copy
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final, NamedTuple

import pytest
from policy_sentry.querying.actions import get_actions_for_service, get_privilege_info

from tests import deprecated
from tests.oracles.cloudformation import As, template
from tests.oracles.deployed import EXTENDED, NAMES, Declared, deployed
from tests.oracles.types import NO_COUNTERPART, TYPES
from tests.soak import chosen

GLOBAL_KEYS: Final = frozenset(
    {
        "aws:PrincipalArn",
        "aws:PrincipalOrgID",
        "aws:RequestedRegion",
        "aws:ResourceAccount",
        "aws:SecureTransport",
        "aws:SourceAccount",
        "aws:SourceArn",
        "lambda:SourceFunctionArn",
    }
)
"""Condition keys that the reference does not list by action. Source: IAM user guide, "AWS global condition
context keys"; Lambda guide, "Working with Lambda execution environment credentials"."""

OF_GUIDES: Final = {"ssmmessages:OpenDataChannel": "ssm:TerminateSession"}
"""Actions whose resource types the reference does not list, and an action with the same.

Source: Systems Manager guide, "Sample IAM policies for Session Manager".
"""

_SEGMENT: Final = "\0"
"""In a pattern: any text without a slash; ``*`` is any text."""


def statement_errors(statement: Mapping[str, Any]) -> Iterator[str]:
    """Yield the errors of a statement; an action with a wildcard must match at least one action."""
    resources = as_list(statement.get("Resource", statement.get("NotResource", ())))
    keys = {
        key
        for operator, test in statement.get("Condition", {}).items()
        for key in test
        if not operator.endswith("IfExists")
    }
    idle = {resource for resource in resources if resource != "*"}
    for written in as_list(statement["Action"]):
        service, _, pattern = written.partition(":")
        known = [action.partition(":")[2] for action in get_actions_for_service(service)]
        meant = [name for name in known if fnmatchcase(name.lower(), pattern.lower())]
        if not meant:
            yield f"{written}: no such action"
        if "*" in pattern:
            idle.clear()
        elif meant:
            info = _privilege(f"{service}:{meant[0]}")
            fitting = {resource: _kinds(info, resource) for resource in resources}
            fitting = {resource: kinds for resource, kinds in fitting.items() if kinds or resource == "*"}
            idle -= fitting.keys()
            if resources and not fitting:
                yield f"{written}: has no resource type like {', '.join(resources)}"
            for resource, kinds in fitting.items():
                yield from (
                    f"{written} on {resource}: has no condition key {key}"
                    for key in sorted(keys - GLOBAL_KEYS)
                    if not key.startswith("aws:PrincipalTag/")
                    if not _supports_key(info, kinds, key)
                )
    yield from (
        f"{resource}: no action of the statement has such a resource type" for resource in sorted(idle)
    )


def missing_resources(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the resource types that an allowed action requires and no statement of a document grants."""
    granted: dict[str, set[str]] = defaultdict(set)
    for statement in document["Statement"]:
        if statement["Effect"] == "Allow" and "Resource" in statement:
            for action in as_list(statement["Action"]):
                info = _privilege(action)
                granted[action] |= {
                    kind for one in as_list(statement["Resource"]) for kind in _kinds(info, one)
                }
    for action, kinds in granted.items():
        info = _privilege(action)
        needed = {kind for kind, rules in info["resource_types"].items() if kind and rules["required"]}
        if missing := sorted(needed - kinds):
            yield f"{action}: requires {' and '.join(missing)} as well"


def _privilege(action: str) -> dict[str, Any]:
    info: dict[str, Any] = get_privilege_info(*action.split(":"))
    if action not in OF_GUIDES:
        return info
    similar: dict[str, Any] = get_privilege_info(*OF_GUIDES[action].split(":"))
    kinds = {kind: {"required": False, "condition_keys": []} for kind in similar["resource_types"] if kind}
    return {
        **info,
        "service_resources": similar["service_resources"],
        "resource_types": {**info["resource_types"], **kinds},
    }


def _kinds(info: Mapping[str, Any], resource: str) -> list[str]:
    """Return the resource types of an action that a pattern may match."""
    arns = {kind: info["service_resources"][kind]["arn"] for kind in info["resource_types"] if kind}
    return [
        kind for kind, arn in arns.items() if resource == "*" or _arns_intersect(_arn_pattern(arn), resource)
    ]


def _supports_key(info: Mapping[str, Any], kinds: list[str], key: str) -> bool:
    """Return whether an action on these resource types has a condition key."""
    # "" has the keys of the request itself.
    listed = [
        one for kind in ("", *kinds) for one in info["resource_types"].get(kind, {}).get("condition_keys", ())
    ]
    return any(re.fullmatch(re.sub(r"\\\$\\\{.*?\\\}", ".+", re.escape(one)), key, re.I) for one in listed)


def _arn_pattern(arn: str) -> str:
    """Return an ARN format of the reference as a pattern. Only a bucket's name has no slash."""
    return re.sub(r"\$\{.*?\}", "*", arn.replace("${BucketName}", _SEGMENT))


def _arns_intersect(one: str, other: str) -> bool:
    """Return whether two patterns may match the same ARN; its six parts are compared separately."""
    parts, others = one.split(":", 5), other.split(":", 5)
    return len(parts) == len(others) and all(map(_patterns_intersect, parts, others))


@lru_cache(None)
def _patterns_intersect(one: str, other: str) -> bool:
    """Return whether some text matches both patterns."""
    if not one or not other:
        return not (one + other).strip("*" + _SEGMENT)
    for star, rest in ((one, other), (other, one)):
        if star[0] in ("*", _SEGMENT) and (
            _patterns_intersect(star[1:], rest)
            or ((star[0], rest[0]) != (_SEGMENT, "/") and _patterns_intersect(star, rest[1:]))
        ):
            return True
    return one[0] == other[0] and _patterns_intersect(one[1:], other[1:])


def as_list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


REGION = "us-west-2"
IGNORED_RULES = {"W3010": "the stack file names zones because a job's volume is in one"}
"""Rules that do not apply, each with the reason."""


def findings(resources: Iterable[Declared]) -> list[tuple[str, str]]:
    """Return the rule of each error and warning, and its path and text."""
    # Imported on use: it takes a second.
    from cfnlint.api import lint

    found = lint(json.dumps(template(resources, TYPES)), regions=[REGION])
    return [(one.rule.id, f"{'/'.join(map(str, one.path[1:]))}: {one.message}") for one in found]


@pytest.mark.parametrize("stack", chosen(NAMES, EXTENDED))
def test_resources_of_a_stack_match_the_schemas(stack: str) -> None:
    found = findings(deployed(stack).resources)
    assert [one for one in found if one[0] not in IGNORED_RULES] == []
    assert {rule for rule, _ in found} == IGNORED_RULES.keys()


def test_every_type_is_in_the_table_or_has_no_counterpart_and_every_entry_is_used() -> None:
    declared = {
        resource.type
        for stack in NAMES
        for resource in deployed(stack).resources
        if resource.type.startswith("aws:")  # objects of a cluster are validated in tests/kubernetes
    }
    named = TYPES.keys() | NO_COUNTERPART.keys()
    assert (declared - named, named - declared) == (set(), set()), "tests/oracles/types.py is the table"
    assert len({kind.type for kind in TYPES.values() if isinstance(kind, As)}) >= 35


def test_nodes_share_a_placement_group_and_have_the_efa_interfaces_of_their_type() -> None:
    resources = {(one.type.rpartition(":")[2], one.name): one for one in deployed(EXTENDED).resources}
    group = resources["PlacementGroup", "llama-nodes"]
    assert group.inputs["strategy"] == "cluster"
    assert group.outputs["name"].startswith("gpu-spot-prod-llama-nodes"), "a policy selects by the prefix"
    between_nodes = resources["SecurityGroup", "llama-nodes"].id
    for role in ("primary", "fallback"):
        template = resources["LaunchTemplate", f"llama-{role}"].inputs
        assert template["placement"] == {"groupName": group.outputs["name"]}
        assert "vpcSecurityGroupIds" not in template, "EC2 refuses them beside interfaces"
        interfaces = template["networkInterfaces"]
        assert [one["interfaceType"] for one in interfaces] == ["interface", *["efa-only"] * 4], "p4d: 4"
        assert all(between_nodes in one["securityGroups"] for one in interfaces)
        assert all(one["deleteOnTermination"] == "true" for one in interfaces)
    others = [one.inputs for (kind, _), one in resources.items() if kind == "LaunchTemplate"]
    assert sum("placement" in one or "networkInterfaces" in one for one in others) == 2, "of this job only"


class Mistake(NamedTuple):
    """A wrong value in a resource of prod, the rule that finds it, and a part of its message."""

    resource: tuple[str, str]
    path: list[Any]
    value: Any
    rule: str
    message: str


def policy(effect: str, action: str) -> str:
    statement = {"Effect": effect, "Action": [action], "Resource": ["*"]}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


TEMPLATE = ("inference-primary", "LaunchTemplate")
FUNCTION = ("controller", "Function")
MISTAKES = {
    "an enumeration": Mistake(
        TEMPLATE, ["blockDeviceMappings", 0, "ebs", "volumeType"], "gp9", "E3030", "'gp9' is not one of"
    ),
    "a property below": Mistake(
        TEMPLATE, ["metadataOptions", "httpToken"], "required", "E3002", "'HttpToken'"
    ),
    "a property": Mistake(("flows", "LogGroup"), ["retention"], 7, "E3002", "'Retention'"),
    "a number of a list": Mistake(
        ("flows", "LogGroup"), ["retentionInDays"], 31, "E3030", "31 is not one of"
    ),
    "a number": Mistake(FUNCTION, ["timeout"], 901, "E3717", "901 is greater than the maximum of 900"),
    "a runtime": Mistake(FUNCTION, ["runtime"], "python3.99", "E3030", "'python3.99' is not one of"),
    "a length": Mistake(("interruption", "EventRule"), ["description"], "x" * 513, "E3033", "than 512"),
    "a pattern": Mistake(
        ("files-checkpoints", "AccessPoint"),
        ["rootDirectory", "path"],
        "checkpoints",
        "E3031",
        "does not match",
    ),
    "a type": Mistake(("vpc", "Vpc"), ["enableDnsSupport"], "perhaps", "E3012", "'perhaps'"),
    "a network": Mistake(("vpc", "Vpc"), ["cidrBlock"], "10.0.0.0/33", "E3002", "'10.0.0.0/33' is not"),
    "a key without its attribute": Mistake(("memory", "Table"), ["hashKey"], "groop", "E3039", "groop"),
    "an effect": Mistake(
        ("flows", "RolePolicy"), ["policy"], policy("Permit", "logs:*"), "E3510", "'Permit' is not one of"
    ),
    "an action": Mistake(
        ("inference-instance", "RolePolicy"), ["policy"], policy("Allow", "logs:Putt"), "W3037", "'putt'"
    ),
}


@pytest.fixture(scope="module")
def mistaken() -> list[tuple[str, str]]:
    """Findings in the resources of prod that have mistakes, with every mistake in them."""
    mistaken: dict[tuple[str, str], Declared] = {}
    for mistake in MISTAKES.values():
        name, kind = mistake.resource
        [resource] = [
            one for one in deployed("prod").resources if one.name == name and one.type.endswith(f":{kind}")
        ]
        *path, last = mistake.path
        parent: Any = mistaken.setdefault(mistake.resource, copy.deepcopy(resource)).inputs
        for step in path:
            parent = parent[step]
        parent[last] = mistake.value
    return findings(mistaken.values())


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(mistaken: list[tuple[str, str]], name: str) -> None:
    mistake = MISTAKES[name]
    assert [text for rule, text in mistaken if rule == mistake.rule and mistake.message in text], mistaken


POLICIES = ("policy", "assumeRolePolicy")
BY_NAME = "arn:aws:autoscaling:us-west-2:123456789012:autoScalingGroup:*:autoScalingGroupName/gpu-spot-dev-*"
VOLUME = "arn:aws:ec2:us-west-2:123456789012:volume/*"


def documents(stack: str) -> list[tuple[str, dict[str, Any]]]:
    """Return every policy document of a stack with its resource's type and name."""
    return [
        (f"{one.type} {one.name}", json.loads(one.inputs[key]))
        for one in deployed(stack).resources
        for key in POLICIES
        if isinstance(one.inputs.get(key), str) and "Statement" in one.inputs[key]
    ]


SPOT_REQUESTS = "arn:aws:ec2:us-west-2:123456789012:spot-instances-request/*"
IGNORED_ERRORS = {
    # Karpenter's own policy grants it for a launch with tags (karpenter.sh, "CloudFormation").
    f"{SPOT_REQUESTS}: no action of the statement has such a resource type"
}


@pytest.mark.parametrize("stack", NAMES)
def test_every_statement_is_effective(stack: str) -> None:
    found = documents(stack)
    assert len(found) >= 8
    assert [
        f"{name}, {statement['Sid']}: {fault}"
        for name, document in found
        for statement in document["Statement"]
        for fault in statement_errors(statement)
        if fault not in IGNORED_ERRORS
    ] == []


@pytest.mark.parametrize("stack", NAMES)
def test_a_role_has_all_resource_types_that_an_action_requires(stack: str) -> None:
    of_roles = ("aws:iam/rolePolicy:", "aws:iam/policy:")
    roles = [(name, one) for name, one in documents(stack) if name.startswith(of_roles)]
    assert roles
    assert [f"{name}: {fault}" for name, document in roles for fault in missing_resources(document)] == []


@pytest.mark.parametrize(
    ("action", "resource", "key", "message"),
    [
        ("autoscaling:SetDesiredCapacities", BY_NAME, None, "no such action"),
        ("autoscaling:Set*Capacities", BY_NAME, None, "no such action"),
        ("ec2:DescribeVolumes", VOLUME, None, "has no resource type like arn:aws:ec2"),
        ("s3:ListBucket", "arn:aws:s3:::books/*", None, "has no resource type like arn:aws:s3:::books/*"),
        ("s3:GetObject", "arn:aws:s3:::books", None, "has no resource type like arn:aws:s3:::books"),
        ("dynamodb:PutItem", "arn:aws:dynamodb:us-west-2:1:index/jobs", None, "has no resource type like"),
        ("autoscaling:SetDesiredCapacity", BY_NAME, "ec2:ResourceTag/a", "condition key ec2:ResourceTag/a"),
        ("ec2:DescribeVolumes", "*", "aws:ResourceTag/a", "condition key aws:ResourceTag/a"),
        ("dynamodb:DescribeTable", "arn:aws:dynamodb:a:1:table/b", "dynamodb:LeadingKeys", "LeadingKeys"),
    ],
)
def test_a_statement_that_grants_nothing_is_found(
    action: str, resource: str, key: str | None, message: str
) -> None:
    statement: dict[str, Any] = {"Effect": "Allow", "Action": [action], "Resource": [resource]}
    if key:
        assert list(statement_errors(statement)) == []
        statement["Condition"] = {"StringEquals": {key: "b"}}
    found = list(statement_errors(statement))
    assert message in found[0], found


def test_a_resource_without_a_matching_action_is_found() -> None:
    statement = {"Effect": "Allow", "Action": ["ec2:DeleteVolume"], "Resource": [VOLUME, BY_NAME]}
    assert list(statement_errors(statement)) == [
        f"{BY_NAME}: no action of the statement has such a resource type"
    ]


def test_a_missing_resource_type_is_found() -> None:
    attach = {"Effect": "Allow", "Action": ["ec2:AttachVolume"], "Resource": [VOLUME]}
    assert list(missing_resources({"Statement": [attach]})) == ["ec2:AttachVolume: requires instance as well"]
    to = {**attach, "Resource": [VOLUME.replace("volume", "instance")]}
    assert list(missing_resources({"Statement": [attach, to]})) == []


def test_only_listed_calls_are_deprecated() -> None:
    warned = {text.split(" ")[0] for stack in NAMES for text in deployed(stack).deprecations}
    assert warned == deprecated.STILL_USED.keys()
