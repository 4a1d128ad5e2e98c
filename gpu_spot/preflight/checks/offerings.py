"""The stack's zones and the instance types offered in them.

Source: ``DescribeInstanceTypeOfferings`` and ``DescribeAvailabilityZones``. Zone names differ between
accounts: us-west-2a of one account is us-west-2c of another (EC2 user guide, "Availability Zone IDs"). A type
that the region does not have "might cause the request to fail entirely" (Auto Scaling guide, "Setup overview
for creating a mixed instances group").
"""

from __future__ import annotations

from collections.abc import Iterator

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult, Status
from gpu_spot.preflight.stack import Stack
from infra.schema import Capacity


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Check the zones, then each group's types in them."""
    ec2 = account.clients("ec2")
    account_zones = {zone["ZoneName"] for zone in ec2.describe_availability_zones()["AvailabilityZones"]}
    for zone in stack.zones:
        if zone not in account_zones:
            advice = f"use other zones in network.zones: {', '.join(sorted(account_zones))}"
            yield CheckResult(zone, "failure", "the account does not have this zone", advice, "network.zones")
    capacities, proxies = stack.capacities, stack.proxies
    types = {name for capacity in capacities.values() for name in capacity.types}
    offered = offered_pools(account, sorted(types | proxies.keys()))
    for group, capacity in capacities.items():
        key = stack.key(group, "capacity.instanceTypes")
        yield from _check_group(group, key, capacity, stack.settings.zones_of(group), offered)
    for name in proxies:
        missing = [zone for zone in stack.zones if (name, zone) not in offered]
        if missing:
            finding = f"proxies: not offered in {', '.join(missing)}"
            status: Status = "failure" if len(missing) == len(stack.zones) else "warning"
            key = "services[].http.proxies.instanceType"
            yield CheckResult(name, status, finding, "choose another type", key)


def offered_pools(account: Account, types: list[str]) -> set[tuple[str, str]]:
    """Return pairs of instance type and zone."""
    pages = (
        account.clients("ec2")
        .get_paginator("describe_instance_type_offerings")
        .paginate(LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": types}])
    )
    return {
        (offering["InstanceType"], offering["Location"])
        for page in pages
        for offering in page["InstanceTypeOfferings"]
    }


def _check_group(
    group: str, key: str, capacity: Capacity, zones: tuple[str, ...], offered: set[tuple[str, str]]
) -> Iterator[CheckResult]:
    pools = {(name, zone) for name in capacity.types for zone in zones} & offered
    finding = f"{len(pools)} of {len(capacity.types) * len(zones)} capacity pools (type and zone) are offered"
    if not pools:
        yield CheckResult(group, "failure", finding, "choose other types or zones", key)
        return
    yield CheckResult(group, "ok", finding)
    for zone in zones:
        if not any(pool_zone == zone for _, pool_zone in pools):
            finding = "none of its types is offered in this zone"
            yield CheckResult(f"{group} in {zone}", "warning", finding, key=key)
    for name in capacity.types:
        subject = f"{group}: {name}"
        if not any(kind == name for kind, _ in offered):
            finding = "not offered in this region: AWS may reject the whole group"
            yield CheckResult(subject, "failure", finding, "remove it from instanceTypes", key)
        elif not any(kind == name for kind, _ in pools):
            yield CheckResult(subject, "warning", "not offered in any zone of the stack", key=key)
