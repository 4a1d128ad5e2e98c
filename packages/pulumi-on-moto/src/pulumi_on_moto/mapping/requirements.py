"""Instance requirements: the local cloud selects the types, since moto only stores the requirements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pulumi_on_moto.fixes.groups.validation import check_requirements
from pulumi_on_moto.mapping.base import ResourceRequest

_READ: Final = {"vcpuCount", "memoryMib", "allowedInstanceTypes"}
_IMPLIED: Final = {
    # The allowed types are accelerator types already.
    "acceleratorCount",
    "acceleratorManufacturers",
    "acceleratorTypes",
    # Types have no price here; the simulated market has them.
    "onDemandMaxPricePercentageOverLowestPrice",
}


def specification(template: Mapping[str, Any]) -> dict[str, Any]:
    """Return a launch template's id, name and version by AWS's names."""
    names = {"id": "launchTemplateId", "name": "launchTemplateName"}
    return {names.get(key, key): value for key, value in template.items() if value is not None}


def expand(draft: ResourceRequest, overrides: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return overrides with requirements replaced by one plain override for each matching type.

    A type matches if it is allowed and its vCPUs and memory, by moto's data, are within the bounds.
    """
    expanded: list[dict[str, Any]] = []
    for override in overrides:
        rest = {key: value for key, value in override.items() if key != "instanceRequirements"}
        requirements = override.get("instanceRequirements")
        if not requirements:
            expanded.append(dict(override))
            continue
        expanded += [{**rest, "instanceType": name} for name in _matching(draft, requirements)]
    return expanded


def check(
    draft: ResourceRequest, specification: Mapping[str, Any] | None, overrides: Sequence[Mapping[str, Any]]
) -> None:
    """Reject requirements that Auto Scaling would reject: they are expanded before it gets them.

    ``specification`` is the launch template of overrides without one.
    """
    wanting = [override for override in overrides if override.get("instanceRequirements")]
    if not wanting:
        return
    named = [specification, *(override.get("launchTemplateSpecification") for override in overrides)]
    images = [_image(draft, image) for image in named if image]
    problem = check_requirements(len(wanting), images)
    if problem is not None:
        raise draft.fail(problem)


def check_of_fleet(draft: ResourceRequest, overrides: Sequence[Mapping[str, Any]]) -> None:
    """Reject ranges without a maximum: for a fleet the provider sends ``Max`` 0 instead.

    Source: pulumi-aws's provider, whose fleet expanders set ``Max`` if the block exists.
    """
    for override in overrides:
        for key, bounds in (override.get("instanceRequirements") or {}).items():
            if isinstance(bounds, Mapping) and int(bounds.get("min") or 0) > int(bounds.get("max") or 0):
                raise draft.fail(f"instanceRequirements.{key}: min {bounds['min']} is above max, sent as 0")


def _image(draft: ResourceRequest, specification: Mapping[str, Any]) -> str:
    versions = {"launchTemplateId": "LaunchTemplateId", "launchTemplateName": "LaunchTemplateName"}
    named = {versions[key]: str(specification[key]) for key in versions if specification.get(key)}
    reply = draft.clients("ec2").describe_launch_template_versions(
        **named, Versions=[str(specification.get("version") or "$Default")]
    )
    return str(reply["LaunchTemplateVersions"][0]["LaunchTemplateData"].get("ImageId", ""))


def _matching(draft: ResourceRequest, requirements: Mapping[str, Any]) -> list[str]:
    keys = {key for key, value in requirements.items() if value is not None}
    if unknown := sorted(keys - _READ - _IMPLIED):
        raise draft.fail(f"instanceRequirements.{unknown[0]} is not emulated locally")
    allowed = [str(name) for name in requirements.get("allowedInstanceTypes") or []]
    if not allowed:
        raise draft.fail("instanceRequirements without allowedInstanceTypes are not emulated locally")
    pages = (
        draft.clients("ec2")
        .get_paginator("describe_instance_types")
        .paginate(Filters=[{"Name": "instance-type", "Values": allowed}])
    )
    types_by_name = {kind["InstanceType"]: kind for page in pages for kind in page["InstanceTypes"]}
    matching = [
        name
        for name in allowed
        if name in types_by_name
        and _within(types_by_name[name]["VCpuInfo"]["DefaultVCpus"], requirements.get("vcpuCount"))
        and _within(types_by_name[name]["MemoryInfo"]["SizeInMiB"], requirements.get("memoryMib"))
    ]
    if not matching:
        raise draft.fail("instanceRequirements match no instance type that the local cloud knows")
    return matching


def _within(value: int, bounds: Mapping[str, Any] | None) -> bool:
    low, high = (bounds or {}).get("min"), (bounds or {}).get("max")
    return (low is None or value >= low) and (high is None or value <= high)
