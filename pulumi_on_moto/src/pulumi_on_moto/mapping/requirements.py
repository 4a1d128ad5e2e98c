"""Instance requirements: the local cloud picks the types itself, because moto stores them and never looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pulumi_on_moto.mapping.base import Draft

_READ: Final = {"vcpuCount", "memoryMib", "allowedInstanceTypes"}
_IMPLIED: Final = {
    # The allowed types are accelerator types already.
    "acceleratorCount",
    "acceleratorManufacturers",
    "acceleratorTypes",
    # Nothing here has a price: who starts instances knows theirs.
    "onDemandMaxPricePercentageOverLowestPrice",
}


def expand(draft: Draft, overrides: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return overrides with a plain one for each type that matches, in place of those with requirements.

    A type matches when it is allowed and its vCPUs and memory, as moto knows them, lie within the bounds.
    """
    expanded: list[dict[str, Any]] = []
    for override in overrides:
        rest = {key: value for key, value in override.items() if key != "instanceRequirements"}
        wanted = override.get("instanceRequirements")
        if not wanted:
            expanded.append(dict(override))
            continue
        expanded += [{**rest, "instanceType": name} for name in _matching(draft, wanted)]
    return expanded


def _matching(draft: Draft, wanted: Mapping[str, Any]) -> list[str]:
    given = {key for key, value in wanted.items() if value is not None}
    if unknown := sorted(given - _READ - _IMPLIED):
        raise draft.fail(f"instanceRequirements.{unknown[0]} is not emulated locally")
    allowed = [str(name) for name in wanted.get("allowedInstanceTypes") or []]
    if not allowed:
        raise draft.fail("instanceRequirements without allowedInstanceTypes are not emulated locally")
    pages = (
        draft.clients("ec2")
        .get_paginator("describe_instance_types")
        .paginate(Filters=[{"Name": "instance-type", "Values": allowed}])
    )
    known = {one["InstanceType"]: one for page in pages for one in page["InstanceTypes"]}
    matching = [
        name
        for name in allowed
        if name in known
        and _within(known[name]["VCpuInfo"]["DefaultVCpus"], wanted.get("vcpuCount"))
        and _within(known[name]["MemoryInfo"]["SizeInMiB"], wanted.get("memoryMib"))
    ]
    if not matching:
        raise draft.fail("instanceRequirements match no instance type that the local cloud knows")
    return matching


def _within(value: int, bounds: Mapping[str, Any] | None) -> bool:
    low, high = (bounds or {}).get("min"), (bounds or {}).get("max")
    return (low is None or value >= low) and (high is None or value <= high)
