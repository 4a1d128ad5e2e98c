"""CloudWatch Logs filter patterns and metric filters, as the guide describes them; moto evaluates none.

Covered: JSON selectors with ``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``&&``, wildcards; fields between
spaces, in quotes or brackets, with conditions and ``...``; terms. Source: CloudWatch Logs guide, "Filter
pattern syntax for metric filters" and "Creating metrics from log events using filters".
"""

from __future__ import annotations

import fnmatch
import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

_CONDITION: Final = re.compile(r"^(?P<field>[^=!<>\s]+)\s*(?P<sign>!=|<=|>=|=|<|>)\s*(?P<value>.+)$")
_NUMERIC: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_FIELD: Final = re.compile(r'"([^"]*)"|\[([^\]]*)\]|(\S+)')


def matched(pattern: str, line: str) -> dict[str, Any] | None:
    """Return the fields of a line that matches, None if it does not."""
    text = pattern.strip()
    if text.startswith("{"):
        return _of_json(text[1:-1], line)
    if text.startswith("["):
        return _of_fields(text[1:-1], line)
    terms = [quoted or term for quoted, term in re.findall(r'"([^"]*)"|(\S+)', text)]
    return {} if all(term in line for term in terms) else None


def published(
    pattern: str, transformation: Mapping[str, Any], minutes: Iterable[Iterable[str]]
) -> list[tuple[int, float] | None]:
    """Return the samples and the sum of each minute; None for a minute without data points.

    A value that is not a number is not published; a minute with lines of which none matches has the default.
    """
    found: list[tuple[int, float] | None] = []
    for lines in (list(minute) for minute in minutes):
        fields = [one for line in lines if (one := matched(pattern, line)) is not None]
        values = [v for one in fields if (v := _number(transformation["metricValue"], one)) is not None]
        default = transformation.get("defaultValue")
        if values:
            found.append((len(values), sum(values)))
        elif lines and not fields and default is not None:
            found.append((1, float(default)))
        else:
            found.append(None)
    return found


def _number(value: str, fields: Mapping[str, Any]) -> float | None:
    try:
        return float(fields[value] if value.startswith("$") else value)
    except (KeyError, TypeError, ValueError):
        return None


def _of_json(conditions: str, line: str) -> dict[str, Any] | None:
    try:
        document = json.loads(line)
    except ValueError:
        return None
    fields: dict[str, Any] = {}
    for condition in conditions.split("&&"):
        found = _CONDITION.match(condition.strip())
        assert found, condition
        value: Any = document
        for key in found["field"].removeprefix("$.").split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if value is None or not _holds(found["sign"], value, found["value"]):
            return None
        fields[found["field"]] = value
    return fields


def _of_fields(names: str, line: str) -> dict[str, Any] | None:
    parts = [part.strip() for part in names.split(",")]
    values = ["".join(groups) for groups in _FIELD.findall(line)]
    if "..." in parts:
        gap = len(values) - len(parts) + 1
        index = parts.index("...")
        parts[index : index + 1] = [f"_{n}" for n in range(max(0, gap))]
    if len(parts) != len(values):
        return None
    fields: dict[str, Any] = {}
    for part, value in zip(parts, values, strict=True):
        found = _CONDITION.match(part)
        if found and not _holds(found["sign"], value, found["value"]):
            return None
        fields[f"${found['field'] if found else part}"] = value
    return fields


def _holds(sign: str, value: Any, wanted: str) -> bool:
    expected = wanted.strip().strip('"')
    if sign in ("=", "!="):
        return fnmatch.fnmatchcase(str(value), expected) == (sign == "=")
    try:
        return _NUMERIC[sign](float(value), float(expected))
    except ValueError:
        return False
