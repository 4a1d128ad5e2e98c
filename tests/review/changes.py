"""Changes of the sample stacks: every key that a stack file has, and every key that it could have, once."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import yaml

from gpu_spot.reference.keys import stack_file
from tests.infra.declared import ROOT

STACKS: Final = (
    *("dev", "eks", "fleet", "keras", "ocr", "prod", "pytorch-ddp", "research", "research-efs", "shared"),
)

_KEY: Final = "arn:aws:kms:us-west-2:123456789012:key/00000000-0000-0000-0000-000000000000"
EXAMPLES: Final[Mapping[str, Any]] = {
    "allowedSources": ["10.0.0.0/8"],
    "ami": "ami-0fedcba9876543210",
    "artifacts": "s3://acme-artifacts/run/",
    "budget": 200,
    "checkpoints": "checkpoints",
    "cidr": "10.99.0.0/16",
    "cluster": "another",
    "command": ["serve", "--again"],
    "cpus": 8,
    "datasets": [{"snapshot": "snap-0fedcba9876543210", "path": "/data/more"}],
    "deadline": "2027-06-01T00:00:00Z",
    "email": "team@example.com",
    "environment": {"SEED": "7"},
    "expireDays": 90,
    "extraEndpoints": ["sts"],
    "gpus": 1,
    "image": "123456789012.dkr.ecr.us-west-2.amazonaws.com/work@sha256:" + "9" * 64,
    "initializationRateMib": 200,
    "kmsKeyArn": _KEY,
    "stateKmsKeyArn": _KEY,
    "matrix": {"SEED": [1, 2]},
    "max": 20,
    "maxPrice": 1.5,
    "monthlyBudgetUsd": 5000,
    "name": "renamed",
    "nodeImage": "al2023@v20261115",
    "onDemandCeiling": 3,
    "path": "/elsewhere",
    "permissionsBoundary": "arn:aws:iam::123456789012:policy/boundary",
    "previews": {"repository": "acme@12/models@345", "createProvider": True, "stateBucket": "acme-state"},
    "python": {"version": "3.11", "requirements": "requirements.txt"},
    "quotaGpus": 4,
    "repository": "https://git.example.org/another/repository",
    "repositorySecret": "git",
    "requirements": "other.txt",
    "revision": "b" * 40,
    "role": "arn:aws:iam::123456789012:role/other",
    "scaling": {"min": 1},
    "snapshot": "snap-0fedcba9876543210",
    "tags": {"cost-centre": "4711"},
    "uid": 2009,
    "version": "3.11",
    "warmInstances": 2,
}
"""A value by the name of the key, where the schema has only a pattern."""

_MORE: Final[Mapping[str, Any]] = {
    "instanceTypes": "g6.4xlarge",
    "zones": "us-west-2d",
    "command": "--verbose",
    "callers": "10.31.0.0/16",
}
"""An element that a list can have in addition."""

_LISTS_WITHOUT_NAMES: Final = frozenset({"callers", "command", "gpus", "instanceTypes", "zones"})
_PATHS_LEFT_OUT: Final = ("aws:region",)
"""A changed region is another stack: every resource moves, and the file's AMIs and zones are not there."""


@dataclass(frozen=True)
class Change:
    """One key of a sample stack with another value; ``value`` is None where the key or element goes."""

    stack: str
    path: tuple[str | int, ...]
    value: Any

    @property
    def key(self) -> str:
        """The key's place in a stack file, for example ``services[].capacity.target``."""
        text = ""
        for part in self.path:
            text += "[]" if isinstance(part, int) else f".{part}"
        return text.lstrip(".").replace("gpu-spot:", "")

    @property
    def title(self) -> str:
        return f"{self.stack} {self.key} = {self.value}"

    def apply(self, config: dict[str, Any]) -> None:
        place: Any = config
        for part in self.path[:-1]:
            if isinstance(place, dict) and part not in place:
                place[part] = {}
            place = place[part]
        if self.value is None:
            del place[self.path[-1]]
        else:
            place[self.path[-1]] = copy.deepcopy(self.value)


@cache
def changes() -> tuple[Change, ...]:
    """Return the changes of all sample stacks, without duplicates."""
    seen: set[tuple[str, str, bool]] = set()
    return tuple(change for stack in STACKS for change in _of(stack, seen))


def _of(stack: str, seen: set[tuple[str, str, bool]]) -> Iterator[Change]:
    """Yield the changes of one stack. A key that no stack file has is set in the first that can have it."""
    config = yaml.safe_load((ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text("utf-8"))["config"]
    schema = stack_file()
    for path, value in _walk(config, schema["properties"]["config"], schema["$defs"], ()):
        change = Change(stack, path, value)
        is_set = _has(config, path)
        sign = (stack if is_set else _runs_on(config, path), f"{change.key} {value}", is_set)
        if sign not in seen and path[0] not in _PATHS_LEFT_OUT:
            seen.add(sign)
            yield change


def _has(config: Any, path: tuple[str | int, ...]) -> bool:
    for part in path:
        if isinstance(config, dict) and part not in config:
            return False
        config = config[part]
    return True


def _runs_on(config: Any, path: tuple[str | int, ...]) -> str:
    """Return where the entry of a path runs; what a key does differs between both."""
    if len(path) > 1 and isinstance(path[1], int):
        entry = config[path[0]][path[1]]
        return f"{entry.get('runsOn', '')} {entry['capacity']['kind']}"
    return ""


def _walk(
    value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any], path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    schema = _resolved(schema, value, definitions)
    if isinstance(value, dict) and schema.get("properties"):
        for key, inner in schema["properties"].items():
            if key in value:
                yield from _walk(value[key], inner, definitions, (*path, key))
                if key not in schema.get("required", ()):
                    yield (*path, key), None
            else:
                for another in _others(key, inner.get("default"), _resolved(inner, None, definitions)):
                    yield (*path, key), another
    elif isinstance(value, list) and path[-1] not in _LISTS_WITHOUT_NAMES and value:
        for index, item in enumerate(value):
            yield from _walk(item, schema.get("items", {}), definitions, (*path, index))
            yield (*path, index), None
    else:
        for another in _others(str(path[-1]), value, schema):
            yield path, another


def _resolved(schema: Mapping[str, Any], value: Any, definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a value, without references; of several the one that fits."""
    if "$ref" in schema:
        rest = {key: item for key, item in schema.items() if key != "$ref"}
        return _resolved({**definitions[schema["$ref"].rpartition("/")[2]], **rest}, value, definitions)
    for alternatives in ("anyOf", "oneOf"):
        options = [_resolved(item, value, definitions) for item in schema.get(alternatives, ())]
        options = [item for item in options if item.get("type") != "null"]
        for option in options:
            kind = option.get("properties", {}).get("kind", {}).get("const")
            if not (isinstance(value, dict) and kind and value.get("kind") != kind):
                return option
    return schema


def _others(key: str, value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    kind = schema.get("type")
    if isinstance(value, list) and key in _LISTS_WITHOUT_NAMES:
        if len(value) > 1:
            yield value[:-1]
            yield value[1:]
        yield [*value, _MORE.get(key, 1 if key == "gpus" else "more")]
    elif "enum" in schema:
        others = [item for item in schema["enum"] if item != value]
        yield from dict.fromkeys((others[0], others[-1]))
    elif kind == "boolean":
        yield not value
    elif kind in ("integer", "number") and isinstance(value, (int, float)) and not isinstance(value, bool):
        for number in (value - max(1, value // 4), value + max(1, value // 4)):
            if schema.get("minimum", number) <= number <= schema.get("maximum", number):
                yield number
    elif key in EXAMPLES and EXAMPLES[key] != value:
        yield EXAMPLES[key]
