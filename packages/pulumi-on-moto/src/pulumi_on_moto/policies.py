"""IAM policy evaluation for a role: deny by default; unsupported elements are errors.

Supports the common part of IAM's identity policies; moto evaluates no conditions.
Source: IAM user guide, "Policy evaluation logic", "Condition operators", "Variables and tags".
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from pulumi_on_moto.errors import LocalCloudError

ConditionKeys = Mapping[str, Sequence[str]]
"""Values by condition key; a key that AWS would not send is missing."""

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z0-9]+:[A-Za-z0-9/_.-]+)\}")
"""A policy variable, in a condition or a resource."""
_KNOWN_ELEMENTS: Final = {"Sid", "Effect", "Action", "Resource", "NotResource", "Condition"}


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """An action on a resource (``*`` if the action has none)."""

    action: str
    resource: str = "*"
    context: ConditionKeys = field(default_factory=dict)


def allows(documents: Iterable[Mapping[str, Any]], request: AccessRequest) -> bool:
    """Return whether policy documents allow a request; raise ``LocalCloudError`` for unsupported elements."""
    effects = _effects(documents, request)
    return "Allow" in effects and "Deny" not in effects


def denies(documents: Iterable[Mapping[str, Any]], request: AccessRequest) -> bool:
    """Return whether a statement denies a request explicitly."""
    return "Deny" in _effects(documents, request)


def _effects(documents: Iterable[Mapping[str, Any]], request: AccessRequest) -> set[str]:
    return {
        statement["Effect"]
        for document in documents
        for statement in _as_list(document["Statement"])
        if _matches(statement, request)
    }


def allowed_actions(documents: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return every action in the statements that allow."""
    return {
        action
        for document in documents
        for statement in _as_list(document["Statement"])
        if statement["Effect"] == "Allow"
        for action in _as_list(statement["Action"])
    }


def _matches(statement: Mapping[str, Any], request: AccessRequest) -> bool:
    unknown = statement.keys() - _KNOWN_ELEMENTS
    if unknown:
        raise LocalCloudError(
            f"policy statement {statement.get('Sid')!r}: {sorted(unknown)[0]} is not supported"
        )
    return (
        any(_like(action.lower(), request.action.lower()) for action in _as_list(statement["Action"]))
        and _is_on(statement, request)
        and all(
            _holds(test, key, [str(value) for value in _as_list(values)], request.context)
            for test, tests in statement.get("Condition", {}).items()
            for key, values in tests.items()
        )
    )


def _is_on(statement: Mapping[str, Any], request: AccessRequest) -> bool:
    patterns, is_excluding = statement.get("NotResource"), "NotResource" in statement
    lowered = {name.lower(): values for name, values in request.context.items()}
    filled = (
        _filled(pattern, lowered) for pattern in _as_list(patterns if is_excluding else statement["Resource"])
    )
    return is_excluding != any(_covers(text, request.resource) for text in filled if text is not None)


def _holds(test: str, key: str, patterns: Sequence[str], context: ConditionKeys) -> bool:
    lowered = {name.lower(): values for name, values in context.items()}
    actual = lowered.get(key.lower())
    # A variable that the request has no value for: the condition's value matches nothing.
    filled = [text for text in (_filled(pattern, lowered) for pattern in patterns) if text is not None]
    if test == "Null":
        return (actual is None) == (patterns[0].lower() == "true")
    quantifier, _, name = test.rpartition(":")
    compare = _OPERATORS.get(name.removesuffix("IfExists"))
    if compare is None or quantifier not in ("", "ForAllValues", "ForAnyValue"):
        raise LocalCloudError(f"condition operator {test!r} is not supported")
    if actual is None:
        return compare in _NEGATED or quantifier == "ForAllValues" or name.endswith("IfExists")
    over = all if compare in _NEGATED else any  # neither this nor that
    satisfied = [over(compare(pattern, value) for pattern in filled) for value in actual]
    if quantifier == "":
        return len(satisfied) == 1 and satisfied[0]
    return all(satisfied) if quantifier == "ForAllValues" else any(satisfied)


def _filled(pattern: str, lowered: ConditionKeys) -> str | None:
    """Return a condition's value with the values of its variables; None if the request lacks one."""
    parts = _VARIABLE.split(pattern)
    for number in range(1, len(parts), 2):
        values = lowered.get(parts[number].lower(), ())
        if len(values) != 1:
            return None
        if "*" in values[0] or "?" in values[0]:
            raise LocalCloudError(f"a wildcard in the value of {parts[number]} is not supported")
        parts[number] = values[0]
    return "".join(parts)


def _like(pattern: str, text: str) -> bool:
    return _pattern(pattern).fullmatch(text) is not None


@lru_cache(4096)
def _pattern(pattern: str) -> re.Pattern[str]:
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in pattern)
    return re.compile("".join(parts), re.DOTALL)


def _covers(pattern: str, resource: str) -> bool:
    return pattern == "*" or _like_arn(pattern, resource)


def _like_arn(pattern: str, arn: str) -> bool:
    """Compare ARNs by part: only in the last part a wildcard matches colons."""
    pattern_parts, parts = pattern.split(":", 5), arn.split(":", 5)
    return len(pattern_parts) == len(parts) and all(map(_like, pattern_parts, parts))


def _unlike(pattern: str, text: str) -> bool:
    return not _like(pattern, text)


_NEGATED: Final = (operator.ne, _unlike)
_OPERATORS: Final[dict[str, Callable[[str, str], bool]]] = {
    "StringEquals": operator.eq,
    "StringNotEquals": operator.ne,
    "StringLike": _like,
    "StringNotLike": _unlike,
    "ArnEquals": _like_arn,
    "ArnLike": _like_arn,
    "Bool": lambda expected, value: expected.lower() == value.lower(),
}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
