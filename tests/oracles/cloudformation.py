"""A stack's resources as a CloudFormation template, for validation only.

CloudFormation's resource schemas are AWS's own, and the provider's inputs are the same properties in another
spelling. An input without an entry in ``types.py`` keeps its name, so an input that AWS does not know becomes
an unknown property.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.oracles.deployed import Declared

Inputs = dict[str, Any]
Properties = dict[str, Any]

# Words that CloudFormation writes in capitals.
SPELLED: Final = {
    "acceleratorTotalMemoryMib": "AcceleratorTotalMemoryMiB",
    "memoryMib": "MemoryMiB",
    "sseAlgorithm": "SSEAlgorithm",
    "transitionToIa": "TransitionToIA",
    "vcpuCount": "VCpuCount",
}


def pascal_case(value: Any) -> Any:
    """Return a value with its keys spelled as in CloudFormation, at any depth."""
    if isinstance(value, dict):
        return {spelled_key(key): pascal_case(nested) for key, nested in value.items()}
    return [pascal_case(item) for item in value] if isinstance(value, list) else value


def spelled_key(key: str) -> str:
    return SPELLED.get(key, key[:1].upper() + key[1:])


def tag_list(tags: Mapping[str, str]) -> list[Properties]:
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


@dataclass(frozen=True)
class As:
    """A Pulumi type as a CloudFormation type.

    Attributes:
        type: Its CloudFormation type.
        name_property: The property of its physical name, which Pulumi generates.
        rename: Properties by input, if more than the first letter differs.
        json_inputs: Inputs of JSON text that CloudFormation takes as objects.
        provider_inputs: Inputs that only affect the provider.
        shape: Makes properties of inputs with another structure, and removes those inputs.
        tags: The property of the tags; empty if CloudFormation has none.
        tag_format: Makes the tags' value.
    """

    type: str
    name_property: str = ""
    rename: Mapping[str, str] = field(default_factory=dict)
    json_inputs: tuple[str, ...] = ()
    provider_inputs: tuple[str, ...] = ()
    shape: Callable[[Inputs], Properties] = lambda inputs: {}
    tags: str = "Tags"
    tag_format: Callable[[Any], Any] = tag_list

    def properties(self, resource: Declared) -> Properties:
        inputs = {key: value for key, value in resource.inputs.items() if key not in self.provider_inputs}
        result = {self.name_property: resource.outputs["name"]} if self.name_property else {}
        tags = inputs.pop("tags", None)
        if tags and self.tags:
            result[self.tags] = self.tag_format(tags)
        result |= self.shape(inputs)
        for key, value in inputs.items():
            name = self.rename.get(key) or spelled_key(key)
            result[name] = json.loads(value) if key in self.json_inputs else pascal_case(value)
        return result


@dataclass(frozen=True)
class Part:
    """A Pulumi type that is a property of another resource in CloudFormation.

    Attributes:
        of: The owner's Pulumi type.
        reference: The input that holds the owner's id or name; for an id of several parts, the inputs joined
            by colons.
        shape: Makes the properties that it adds; lists are appended.
    """

    of: str
    reference: str
    shape: Callable[[Inputs], Properties]


def template(resources: Iterable[Declared], types: Mapping[str, As | Part]) -> dict[str, Any]:
    """Return a template of the resources whose types are in the table."""
    resources_by_id: dict[str, Any] = {}
    properties_by_id: dict[tuple[str, str], Properties] = {}
    parts: list[tuple[Part, Declared]] = []
    for number, resource in enumerate(resources):
        match types.get(resource.type):
            case As() as kind:
                properties = kind.properties(resource)
                resources_by_id[f"{''.join(filter(str.isalnum, resource.name))}{number}"] = {
                    "Type": kind.type,
                    "Properties": properties,
                }
                properties_by_id[resource.type, resource.id] = properties
            case Part() as part:
                parts.append((part, resource))
    for part, resource in parts:
        owner = properties_by_id[part.of, ":".join(resource.inputs[key] for key in part.reference.split(":"))]
        for key, value in part.shape(dict(resource.inputs)).items():
            owner[key] = [*owner.get(key, []), *value] if isinstance(value, list) else value
    return {"AWSTemplateFormatVersion": "2010-09-09", "Resources": resources_by_id}
