"""Describes the JSON Schema of a value in words."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

_MAX_PATTERN_LENGTH: Final = 60
_LONG_PATTERN_TEXT: Final = "text of a fixed form"


def allowed(rule: Mapping[str, Any], link: Callable[[str], str]) -> str:
    """Return what ``rule`` allows, in Markdown; ``link`` returns the link to a model by its ``$ref``."""
    if "$ref" in rule:
        return link(rule["$ref"])
    if alternatives := rule.get("oneOf") or rule.get("anyOf"):
        return _one_of(alternatives, link)
    if "const" in rule or "enum" in rule:
        return ", ".join(f"`{_plain(value)}`" for value in rule.get("enum", [rule.get("const")]))
    kind = rule.get("type")
    if kind == "boolean":
        return "`true`, `false`"
    if kind in ("integer", "number"):
        return _number(rule, "a whole number" if kind == "integer" else "a number")
    if kind == "array":
        items = allowed(rule.get("items", {}), link)
        return f"a list{_size(rule, 'minItems', 'maxItems')} of: {items}"
    if kind == "object":
        values = [*rule.get("patternProperties", {}).values(), rule.get("additionalProperties", {})]
        return f"a mapping to: {allowed(next(v for v in values if isinstance(v, dict)), link)}"
    return _text(rule)


def _one_of(rules: list[Mapping[str, Any]], link: Callable[[str], str]) -> str:
    # A number is also accepted as text; the page does not mention it.
    non_null = [rule for rule in rules if rule.get("type") != "null"]
    numbers = [rule for rule in non_null if rule.get("type") in ("integer", "number")]
    is_number = numbers and all(rule in numbers or rule.get("type") == "string" for rule in non_null)
    words = [allowed(rule, link) for rule in (numbers if is_number else non_null)]
    return " or ".join(dict.fromkeys(words))


def _number(rule: Mapping[str, Any], type_text: str) -> str:
    minimum, maximum = rule.get("minimum"), rule.get("maximum")
    if minimum is not None and maximum is not None:
        return f"{_count(minimum)} to {_count(maximum)}"
    return type_text if minimum is None else f"{type_text}, at least {_count(minimum)}"


def _count(number: float) -> str:
    return f"{int(number):,}" if number == int(number) else str(number)


def _size(rule: Mapping[str, Any], min_key: str, max_key: str) -> str:
    if max_key in rule:
        return f" of {rule.get(min_key, 0):,} to {rule[max_key]:,}"
    return " of at least one" if rule.get(min_key) else ""


def _text(rule: Mapping[str, Any]) -> str:
    if pattern := rule.get("pattern"):
        return f"`{pattern}`" if len(pattern) <= _MAX_PATTERN_LENGTH else _LONG_PATTERN_TEXT
    if "maxLength" in rule:
        return f"text of {rule.get('minLength', 0)} to {rule['maxLength']} characters"
    return "text"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
