"""What JSON Schema says of one value, in words: a pure function."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

_LONGEST_PATTERN: Final = 60
_OF_A_FORM: Final = "text of a fixed form"


def allowed(rule: Mapping[str, Any], link: Callable[[str], str]) -> str:
    """Return what ``rule`` allows, in Markdown; ``link`` names a model of the schema by its ``$ref``."""
    if "$ref" in rule:
        return link(rule["$ref"])
    if several := rule.get("oneOf") or rule.get("anyOf"):
        return _one_of(several, link)
    if "const" in rule or "enum" in rule:
        return ", ".join(f"`{_plain(one)}`" for one in rule.get("enum", [rule.get("const")]))
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
    # A number may be written as text, too, which nobody needs to read.
    known = [one for one in rules if one.get("type") != "null"]
    numbers = [one for one in known if one.get("type") in ("integer", "number")]
    is_number = numbers and all(one in numbers or one.get("type") == "string" for one in known)
    words = [allowed(one, link) for one in (numbers if is_number else known)]
    return " or ".join(dict.fromkeys(words))


def _number(rule: Mapping[str, Any], what: str) -> str:
    least, most = rule.get("minimum"), rule.get("maximum")
    if least is not None and most is not None:
        return f"{_count(least)} to {_count(most)}"
    return what if least is None else f"{what}, at least {_count(least)}"


def _count(number: float) -> str:
    return f"{int(number):,}" if number == int(number) else str(number)


def _size(rule: Mapping[str, Any], least: str, most: str) -> str:
    if most in rule:
        return f" of {rule.get(least, 0):,} to {rule[most]:,}"
    return " of at least one" if rule.get(least) else ""


def _text(rule: Mapping[str, Any]) -> str:
    if pattern := rule.get("pattern"):
        return f"`{pattern}`" if len(pattern) <= _LONGEST_PATTERN else _OF_A_FORM
    if "maxLength" in rule:
        return f"text of {rule.get('minLength', 0)} to {rule['maxLength']} characters"
    return "text"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
