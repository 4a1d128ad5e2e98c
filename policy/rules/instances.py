"""Rules for instances: metadata service, images, capacity pools and On-Demand cost."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from contracts import names
from contracts.group import config
from contracts.group.warm_pool import on_demand_share
from policy.rules.model import UNKNOWN, ExternalFacts, PolicyRule, RuleSettings, Subject, as_list

_WITH_METADATA: Final = frozenset(
    {
        *("Instance", "InstanceMetadataDefaults", "LaunchConfiguration", "LaunchTemplate"),
        "SpotInstanceRequest",
    }
)
_AMI: Final = re.compile(r"ami-[0-9a-f]{8,17}")


def _metadata(subject: Subject, _settings: RuleSettings, _facts: ExternalFacts) -> Iterator[str]:
    if subject.kind == "SpotFleetRequest" and as_list(subject.inputs.get("launchSpecifications")):
        yield "has launchSpecifications, which cannot require IMDSv2; use launchTemplateConfigs"
    if subject.type.endswith(":EC2NodeClass"):
        spec = subject.inputs.get("spec")
        nodes = spec.get("metadataOptions") if isinstance(spec, Mapping) else None
        if isinstance(nodes, Mapping) and nodes.get("httpTokens", "required") not in ("required", UNKNOWN):
            yield f"metadataOptions.httpTokens must be required (IMDSv2), not {nodes['httpTokens']}"
    if not subject.type.startswith("aws:ec2") or subject.kind not in _WITH_METADATA:
        return
    if subject.kind == "InstanceMetadataDefaults":
        tokens = subject.inputs.get("httpTokens")
        if tokens not in ("required", UNKNOWN):
            yield f"httpTokens must be required (IMDSv2), not {tokens or 'unset'}"
        return
    options = subject.inputs.get("metadataOptions") or {}
    tokens = options if options == UNKNOWN else options.get("httpTokens")
    if tokens not in ("required", UNKNOWN):
        yield f"metadataOptions.httpTokens must be required (IMDSv2), not {tokens or 'unset'}"


def _image_age(subject: Subject, settings: RuleSettings, facts: ExternalFacts) -> Iterator[str]:
    image = subject.inputs.get("imageId") if subject.kind == "LaunchTemplate" else None
    if not isinstance(image, str) or not _AMI.fullmatch(image):
        return  # resolved at each launch, or unknown in a preview
    created_at = facts.image_created_at(image, subject.region)
    if created_at is not None and (days := (facts.now - created_at).days) > settings["maximumDays"]:
        yield (
            f"image {image} is {days} days old, more than {settings['maximumDays']}; run gpu-spot pin-images"
        )


def _pools(subject: Subject, settings: RuleSettings, _facts: ExternalFacts) -> Iterator[str]:
    counts = _count_types_and_zones(subject)
    if counts is None:
        return
    types, zones = counts
    if types * zones < settings["minimum"]:
        pools = f"{types} {'type' if types == 1 else 'types'} in {zones} {'zone' if zones == 1 else 'zones'}"
        yield f"{pools} are {types * zones} Spot capacity pools; use at least {settings['minimum']}"


def _count_types_and_zones(subject: Subject) -> tuple[int, int] | None:
    """Return the numbers of instance types and zones of a Spot group; None for other resources."""
    inputs = subject.inputs
    if subject.kind == "SpotFleetRequest":
        overrides = _objects(_objects(inputs.get("launchTemplateConfigs")), "overrides")
        if not overrides or any("instanceRequirements" in override for override in overrides):
            return None
        # Unknown subnets count: there is an override per type and subnet.
        types = {override.get("instanceType") for override in overrides}
        return len(types), -(-len(overrides) // len(types))
    if subject.kind == "Group" and _buys_spot(inputs):
        overrides = _overrides(inputs)
        zones = inputs.get("vpcZoneIdentifiers") or inputs.get("availabilityZones") or ()
        if isinstance(zones, str):
            return None
        if not overrides or any("instanceRequirements" in override for override in overrides):
            return None
        return len({override.get("instanceType") for override in overrides}), len(zones)
    return None


def _ceiling(
    subjects: Sequence[Subject], settings: RuleSettings, facts: ExternalFacts
) -> Iterator[tuple[str, str]]:
    maximum = settings["maximumUsdPerHour"]
    if maximum <= 0:
        return
    total = 0.0
    parameters = _group_configs(subjects)
    for subject in subjects:
        if subject.kind == "Group":
            units, overrides = _on_demand_units(subject.inputs), _overrides(subject.inputs)
            is_known = subject.inputs.get("mixedInstancesPolicy") != UNKNOWN
        elif subject.kind == "SpotFleetRequest":
            units = _on_demand_units_of_fleet(subject, parameters)
            configs = subject.inputs.get("launchTemplateConfigs")
            overrides, is_known = _objects(_objects(configs), "overrides"), configs != UNKNOWN
        else:
            continue
        if not units or not is_known:
            continue
        prices, unpriced = _unit_prices(overrides, subject.home, facts)
        if unpriced:
            yield (
                subject.urn,
                f"{', '.join(unpriced)} in {subject.home or 'an unknown region'}: On-Demand price unknown, "
                "so the cost per hour cannot be checked (make prices)",
            )
        total += units * max(prices, default=0.0)
    if total > maximum:
        advice = "lower the groups' max, or raise maximumUsdPerHour"
        yield "", f"On-Demand may cost {total:.2f} USD per hour, more than {maximum}; {advice}"


def _unit_prices(
    overrides: Sequence[Mapping[str, Any]], region: str, facts: ExternalFacts
) -> tuple[list[float], list[str]]:
    """Return the hourly prices of a unit of capacity, and the types, or their selection, without a price."""
    if not overrides:
        return [], ["a group without listed types"]
    options = [
        (name, facts.price(name, region), override.get("weightedCapacity") or 1)
        for override in overrides
        for name in _types_of(override)
    ]
    prices = [price / float(weight) for _, price, weight in options if price and weight != UNKNOWN]
    return prices, sorted({name for name, price, _ in options if price is None})


def _types_of(override: Mapping[str, Any]) -> list[str]:
    """Return the types that an override may launch, or a text that has no price; none if it is unknown."""
    requirements = override.get("instanceRequirements")
    if isinstance(requirements, Mapping):
        allowed = requirements.get("allowedInstanceTypes")
        types = as_list(allowed)
        return types if types or allowed == UNKNOWN else ["instanceRequirements without allowedInstanceTypes"]
    return as_list(override.get("instanceType"))


def _on_demand_units(inputs: Mapping[str, Any]) -> float:
    """Return the maximum On-Demand capacity of a group, in instances or units of weight."""
    policy = inputs.get("mixedInstancesPolicy") or {}
    shares = ({} if policy == UNKNOWN else policy.get("instancesDistribution")) or {}
    max_size = inputs.get("maxSize") or 0
    if UNKNOWN in (max_size, shares) or UNKNOWN in dict(shares).values():
        return 0.0
    base, above = shares.get("onDemandBaseCapacity"), shares.get("onDemandPercentageAboveBaseCapacity", 100)
    return on_demand_share(int(max_size), int(base or 0), 100 - int(above))


def _on_demand_units_of_fleet(subject: Subject, parameters: Mapping[str, config.GroupConfig]) -> float:
    """Return the maximum On-Demand capacity of a Spot Fleet, in instances or units of weight.

    A fleet of type maintain is declared empty: the controller divides at most the group's maximum.
    """
    declared = subject.inputs.get("onDemandTargetCapacity") or 0
    units = 0.0 if declared == UNKNOWN else float(declared)
    group = parameters.get(str(subject.tags.get(names.TAG_GROUP, "")))
    if group is None or subject.inputs.get("fleetType", "maintain") != "maintain":
        return units
    return max(units, on_demand_share(group.maximum, group.base, group.spot_percentage))


def _group_configs(subjects: Sequence[Subject]) -> dict[str, config.GroupConfig]:
    """Return the controller's settings by group, of the parameters that are known."""
    return {
        str(subject.tags[names.TAG_GROUP]): config.parse(value)
        for subject in subjects
        if subject.kind == "Parameter"
        and subject.name.endswith("-config")
        and names.TAG_GROUP in subject.tags
        and isinstance(value := subject.inputs.get("insecureValue"), str)
        and value != UNKNOWN
    }


def _buys_spot(inputs: Mapping[str, Any]) -> bool:
    policy = inputs.get("mixedInstancesPolicy")
    shares = policy.get("instancesDistribution") if isinstance(policy, Mapping) else None
    above = shares.get("onDemandPercentageAboveBaseCapacity", 100) if isinstance(shares, Mapping) else 100
    return above not in (100, UNKNOWN)


def _overrides(inputs: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    policy = inputs.get("mixedInstancesPolicy")
    template = policy.get("launchTemplate") if isinstance(policy, Mapping) else None
    return _objects([template], "overrides") if isinstance(template, Mapping) else []


def _objects(values: Any, key: str = "") -> list[Mapping[str, Any]]:
    """Return the objects of a list, or of the lists that they hold under ``key``."""
    objects = [] if isinstance(values, str) else [v for v in values or () if isinstance(v, Mapping)]
    return [inner for item in objects for inner in _objects(item.get(key))] if key else objects


def _number(default: float, description: str, minimum: float = 0) -> dict[str, Any]:
    kind = "integer" if isinstance(default, int) else "number"
    return {"type": kind, "minimum": minimum, "default": default, "description": description}


RULES: Final = (
    PolicyRule(
        "imdsv2", "The instance metadata service requires session tokens (IMDSv2).", "mandatory", _metadata
    ),
    PolicyRule(
        "image-age",
        "Machine images are not old.",
        "advisory",
        _image_age,
        settings={"maximumDays": _number(90, "Days since the image was created.", 1)},
    ),
    PolicyRule(
        "capacity-pools",
        "Spot groups use several capacity pools (type and zone).",
        "advisory",
        _pools,
        settings={"minimum": _number(3, "Capacity pools per group.", 1)},
    ),
    PolicyRule(
        "on-demand-ceiling",
        "The maximum On-Demand capacity of all groups has known prices and costs at most this per hour.",
        "advisory",
        check_stack=_ceiling,
        settings={"maximumUsdPerHour": _number(0.0, "US dollars per hour; 0: no limit.")},
    ),
)
