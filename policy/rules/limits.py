"""Limits that an environment sets: regions and instance types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from contracts.sentences import alternatives
from policy.rules.model import (
    UNKNOWN,
    ExternalFacts,
    PolicyRule,
    RuleSettings,
    Subject,
    as_list,
    names_setting,
)

_TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
_OPEN_CHOICE: Final = "instanceRequirements without allowedInstanceTypes"


def _region(subject: Subject, settings: RuleSettings, _facts: ExternalFacts) -> Iterator[str]:
    allowed = settings["allowed"]
    is_unknown = not subject.home and subject.inputs.get("region") == UNKNOWN
    if allowed and subject.kind and not is_unknown and subject.home not in allowed:
        yield f"region must be {alternatives(allowed)}, not {subject.home or 'unknown (set aws:region)'}"


def _instance_types(subject: Subject, settings: RuleSettings, _facts: ExternalFacts) -> Iterator[str]:
    allowed = settings["allowed"]
    if not allowed:
        return
    for name in sorted(set(_types_of(subject))):
        if not any(fnmatchcase(name, pattern) for pattern in allowed):
            yield f"instance type must be {alternatives(allowed)}, not {name}"


def _types_of(subject: Subject) -> Iterator[str]:
    """Yield the instance types, or patterns of them, that a resource may start."""
    inputs = subject.inputs
    if subject.type.startswith(("aws:ec2/", "aws:autoscaling/", "aws:eks/")):
        yield from _named(inputs)
    elif subject.type.endswith(":NodePool"):
        for requirement in as_list(_path(inputs, "spec", "template", "spec", "requirements")):
            if isinstance(requirement, Mapping) and requirement.get("key") == _TYPE_LABEL:
                yield from (str(value) for value in as_list(requirement.get("values")))


def _named(value: Any) -> Iterator[str]:
    """Yield the values of ``instanceType`` and ``instanceTypes`` at any depth."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key in ("instanceType", "instanceTypes", "allowedInstanceTypes"):
                yield from (str(name) for name in as_list(inner) if name != UNKNOWN)
            elif key == "instanceRequirements" and isinstance(inner, Mapping):
                yield from _named(inner) if inner.get("allowedInstanceTypes") else [_OPEN_CHOICE]
            else:
                yield from _named(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _named(inner)


def _path(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


RULES: Final = (
    PolicyRule(
        "regions",
        "Resources are in the allowed regions.",
        "mandatory",
        _region,
        settings={"allowed": names_setting("Regions; empty: all.")},
    ),
    PolicyRule(
        "instance-types",
        "Instances are of the allowed types.",
        "mandatory",
        _instance_types,
        settings={"allowed": names_setting("Instance types, also patterns such as g6.*; empty: all.")},
    ),
)
