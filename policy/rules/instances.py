"""Instances: metadata, images, capacity pools, and what on-demand may cost."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from policy.rules.model import UNKNOWN, Outside, PolicyRule, RuleSettings, Subject

_AMI: Final = re.compile(r"ami-[0-9a-f]{8,17}")


def _metadata(subject: Subject, _settings: RuleSettings, _facts: Outside) -> Iterator[str]:
    if subject.kind not in ("Instance", "LaunchTemplate"):
        return
    options = subject.inputs.get("metadataOptions") or {}
    tokens = options if options == UNKNOWN else options.get("httpTokens")
    if tokens not in ("required", UNKNOWN):
        yield f"metadataOptions.httpTokens is {tokens or 'not set'}, allowed: required (IMDSv2)"


def _image_age(subject: Subject, settings: RuleSettings, facts: Outside) -> Iterator[str]:
    image = subject.inputs.get("imageId") if subject.kind == "LaunchTemplate" else None
    if not isinstance(image, str) or not _AMI.fullmatch(image):
        return  # looked up at each launch, or not known yet
    made = facts.image_made(image, subject.region)
    if made is not None and (days := (facts.now - made).days) > settings["maximumDays"]:
        yield f"image {image} is {days} days old, allowed: {settings['maximumDays']} (gpu-spot pin-images)"


def _pools(subject: Subject, settings: RuleSettings, _facts: Outside) -> Iterator[str]:
    found = _offered(subject)
    if found is None:
        return
    types, zones = found
    if types * zones < settings["minimum"]:
        pools = f"{types} {'type' if types == 1 else 'types'} in {zones} {'zone' if zones == 1 else 'zones'}"
        yield f"{pools} are {types * zones} spot capacity pools, allowed: at least {settings['minimum']}"


def _offered(subject: Subject) -> tuple[int, int] | None:
    """Return how many types and zones a spot group draws from; None for no spot group."""
    inputs = subject.inputs
    if subject.kind == "SpotFleetRequest":
        overrides = _each(_each(inputs.get("launchTemplateConfigs")), "overrides")
        if not overrides or any("instanceRequirements" in one for one in overrides):
            return None
        # Subnets that are not known yet count, each by its place beside the same type.
        types = {one.get("instanceType") for one in overrides}
        return len(types), -(-len(overrides) // len(types))
    if subject.kind == "Group" and _buys_spot(inputs):
        overrides = _overrides(inputs)
        zones = inputs.get("vpcZoneIdentifiers") or inputs.get("availabilityZones") or ()
        if not overrides or isinstance(zones, str) or any("instanceRequirements" in one for one in overrides):
            return None
        return len({one.get("instanceType") for one in overrides}), len(zones)
    return None


def _ceiling(
    subjects: Sequence[Subject], settings: RuleSettings, facts: Outside
) -> Iterator[tuple[str, str]]:
    most = settings["maximumUsdPerHour"]
    if most <= 0:
        return
    total, unpriced = 0.0, set[str]()
    for subject in subjects:
        if subject.kind == "Group":
            units = _on_demand_units(subject.inputs)
            prices = {}
            for one in _overrides(subject.inputs):
                name = str(one.get("instanceType", "instanceRequirements"))
                price = facts.price(name, subject.region)
                if price is None:
                    unpriced.add(name)
                else:
                    prices[name] = price / float(one.get("weightedCapacity") or 1)
            total += units * max(prices.values(), default=0.0)
    if total > most:
        told = f" (without {', '.join(sorted(unpriced))}, whose price is not known)" if unpriced else ""
        yield "", f"on-demand may cost {total:.2f} USD an hour{told}, allowed: {most}"


def _on_demand_units(inputs: Mapping[str, Any]) -> float:
    """Return how many instances, or units of weight, a group may buy on-demand."""
    policy = inputs.get("mixedInstancesPolicy") or {}
    shares = ({} if policy == UNKNOWN else policy.get("instancesDistribution")) or {}
    most = inputs.get("maxSize") or 0
    if most == UNKNOWN or shares == UNKNOWN:
        return 0.0
    base = min(float(shares.get("onDemandBaseCapacity") or 0), float(most))
    above = float(shares.get("onDemandPercentageAboveBaseCapacity", 100))
    return base + (float(most) - base) * above / 100


def _buys_spot(inputs: Mapping[str, Any]) -> bool:
    policy = inputs.get("mixedInstancesPolicy")
    shares = policy.get("instancesDistribution") if isinstance(policy, Mapping) else None
    if not isinstance(shares, Mapping):
        return False
    return float(shares.get("onDemandPercentageAboveBaseCapacity", 100)) < 100


def _overrides(inputs: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    policy = inputs.get("mixedInstancesPolicy")
    template = policy.get("launchTemplate") if isinstance(policy, Mapping) else None
    return _each([template], "overrides") if isinstance(template, Mapping) else []


def _each(values: Any, key: str = "") -> list[Mapping[str, Any]]:
    """Return the objects of a list, or of the lists that they hold under ``key``."""
    found = [one for one in values or () if isinstance(one, Mapping)] if not isinstance(values, str) else []
    return [inner for one in found for inner in _each(one.get(key))] if key else found


def _number(default: float, words: str, least: float = 0) -> dict[str, Any]:
    kind = "integer" if isinstance(default, int) else "number"
    return {"type": kind, "minimum": least, "default": default, "description": words}


RULES: Final = (
    PolicyRule("imdsv2", "Instances answer metadata with a session token only.", "mandatory", _metadata),
    PolicyRule(
        "image-age",
        "Machine images are not old.",
        "advisory",
        _image_age,
        settings={"maximumDays": _number(90, "Days since the image was made.", 1)},
    ),
    PolicyRule(
        "capacity-pools",
        "Spot groups draw from several capacity pools (type and zone).",
        "advisory",
        _pools,
        settings={"minimum": _number(3, "Pools of each group.", 1)},
    ),
    PolicyRule(
        "on-demand-ceiling",
        "What all groups may buy on-demand together costs no more than this an hour.",
        "advisory",
        check_stack=_ceiling,
        settings={"maximumUsdPerHour": _number(0.0, "US dollars an hour; 0: no bound.")},
    ),
)
