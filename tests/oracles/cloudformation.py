"""What a stack declares, written as a CloudFormation template.

Nobody deploys it. CloudFormation's resource schemas are AWS's own account of what a resource may be, and the
provider's inputs are the same things in another spelling. An input that the table in ``types.py`` leaves out
keeps its name, so that one which AWS does not know comes out as an unknown property.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.oracles.deployed import Declared

Inputs = dict[str, Any]
Properties = dict[str, Any]

# Words that CloudFormation writes in capitals, wherever they stand.
SPELLED: Final = {
    "acceleratorTotalMemoryMib": "AcceleratorTotalMemoryMiB",
    "memoryMib": "MemoryMiB",
    "sseAlgorithm": "SSEAlgorithm",
    "transitionToIa": "TransitionToIA",
    "vcpuCount": "VCpuCount",
}


def pascal(value: Any) -> Any:
    """Spell the keys of a value as CloudFormation does, at any depth."""
    if isinstance(value, dict):
        return {spelled(key): pascal(one) for key, one in value.items()}
    return [pascal(one) for one in value] if isinstance(value, list) else value


def spelled(key: str) -> str:
    return SPELLED.get(key, key[:1].upper() + key[1:])


def listed(tags: Mapping[str, str]) -> list[Properties]:
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


@dataclass(frozen=True)
class As:
    """A Pulumi type as a CloudFormation type.

    Attributes:
        type: CloudFormation's name of it.
        named: the property of its name in AWS, which Pulumi makes up.
        rename: properties by input, where more differs than the first letter.
        parsed: inputs of JSON text that CloudFormation takes as objects.
        ours: inputs that only tell the provider how to go about it.
        shape: makes properties of inputs that are arranged otherwise; it takes those out.
        tags: the property of the tags; empty where CloudFormation has none.
        tagged: how tags are written.
    """

    type: str
    named: str = ""
    rename: Mapping[str, str] = field(default_factory=dict)
    parsed: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()
    shape: Callable[[Inputs], Properties] = lambda inputs: {}
    tags: str = "Tags"
    tagged: Callable[[Any], Any] = listed

    def properties(self, resource: Declared) -> Properties:
        """Return the properties of a resource."""
        inputs = {key: value for key, value in resource.inputs.items() if key not in self.ours}
        made = {self.named: resource.outputs["name"]} if self.named else {}
        tags = inputs.pop("tags", None)
        if tags and self.tags:
            made[self.tags] = self.tagged(tags)
        made |= self.shape(inputs)
        for key, value in inputs.items():
            name = self.rename.get(key) or spelled(key)
            made[name] = json.loads(value) if key in self.parsed else pascal(value)
        return made


@dataclass(frozen=True)
class Part:
    """A Pulumi type that is a property of another resource in CloudFormation.

    Attributes:
        of: the other's Pulumi type.
        found: the input that holds the other's id or name; of an id of several parts, the inputs by colons.
        shape: the properties that it adds; lists are joined.
    """

    of: str
    found: str
    shape: Callable[[Inputs], Properties]


def template(resources: Iterable[Declared], types: Mapping[str, As | Part]) -> dict[str, Any]:
    """Return a template of the resources whose types the table names; logical ids are theirs, in letters."""
    made: dict[str, Any] = {}
    whole: dict[tuple[str, str], Properties] = {}
    parts: list[tuple[Part, Declared]] = []
    for number, resource in enumerate(resources):
        match types.get(resource.type):
            case As() as kind:
                properties = kind.properties(resource)
                made[f"{''.join(filter(str.isalnum, resource.name))}{number}"] = {
                    "Type": kind.type,
                    "Properties": properties,
                }
                whole[resource.type, resource.id] = properties
            case Part() as part:
                parts.append((part, resource))
    for part, resource in parts:
        owner = whole[part.of, ":".join(resource.inputs[key] for key in part.found.split(":"))]
        for key, value in part.shape(dict(resource.inputs)).items():
            owner[key] = [*owner.get(key, []), *value] if isinstance(value, list) else value
    return {"AWSTemplateFormatVersion": "2010-09-09", "Resources": made}
