"""Which of the stack's instance types its zones have, and whether the zones are this account's.

Source: ``DescribeInstanceTypeOfferings`` and ``DescribeAvailabilityZones``. A zone's name is the account's
own: us-west-2a of one account is another's us-west-2c (EC2 user guide, "Availability Zone IDs"). A type that
the region does not have "might cause the request to fail entirely" (Auto Scaling guide, "Setup overview for
creating a mixed instances group").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.remark import Remark
from gpu_spot.preflight.stack import Stack
from infra.schema import Capacity

NAME: Final = "zones and instance types"


def look(stack: Stack, account: Account) -> Iterator[Remark]:
    """Look at the zones, then at each group's types in them."""
    ec2 = account.clients("ec2")
    there = {zone["ZoneName"] for zone in ec2.describe_availability_zones()["AvailabilityZones"]}
    for zone in stack.zones:
        if zone not in there:
            advice = f"put others into network.zones: {', '.join(sorted(there))}"
            yield Remark(zone, "failure", "this account has no such zone", advice)
    capacities = stack.settings.capacities
    offered = _offered(ec2, sorted({name for one in capacities.values() for name in one.types}))
    for group, capacity in capacities.items():
        yield from _of_group(group, capacity, stack.zones, offered)


def _offered(ec2: Any, types: list[str]) -> set[tuple[str, str]]:
    """Return pairs of type and zone."""
    pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": types}]
    )
    return {(one["InstanceType"], one["Location"]) for page in pages for one in page["InstanceTypeOfferings"]}


def _of_group(
    group: str, capacity: Capacity, zones: tuple[str, ...], offered: set[tuple[str, str]]
) -> Iterator[Remark]:
    pools = {(name, zone) for name in capacity.types for zone in zones} & offered
    told = f"{len(pools)} of {len(capacity.types) * len(zones)} pools (a type in a zone) exist"
    if not pools:
        yield Remark(group, "failure", told, "choose other types or zones")
        return
    yield Remark(group, "ok", told)
    for zone in zones:
        if not any(place == zone for _, place in pools):
            yield Remark(f"{group} in {zone}", "warning", "none of its types is sold there")
    for name in capacity.types:
        subject = f"{group}: {name}"
        if not any(kind == name for kind, _ in offered):
            found = "is not sold in this region: AWS may refuse the whole group"
            yield Remark(subject, "failure", found, "take it out of instanceTypes")
        elif not any(kind == name for kind, _ in pools):
            yield Remark(subject, "warning", "is sold in none of the stack's zones")
