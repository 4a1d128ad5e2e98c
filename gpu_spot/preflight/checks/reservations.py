"""Whether the capacity that groups reckon as reserved, or jobs have bought for a date, is there to use.

Source: ``DescribeCapacityReservations``, and for a resource group of them ``ListGroupResources``. A launch
goes into a reservation of its type, platform and zone (EC2 guide, "On-Demand Capacity Reservations").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.remark import Remark
from gpu_spot.preflight.stack import Stack
from infra.schema import Capacity
from infra.schema.reservation import CapacityBlock, Reservation

NAME: Final = "reservations"
_PLATFORM: Final = "Linux/UNIX"
_MISSING: Final = ("InvalidCapacityReservationId", "NotFoundException")
_NOT_THERE: Final = "is not in this account and region"
_TO_COME: Final = ("payment-pending", "pending", "scheduled", "active")


def look(stack: Stack, account: Account) -> Iterator[Remark]:
    """Look at each group's reservation, and at each job's Capacity Block."""
    for group, capacity in stack.settings.capacities.items():
        reservation = capacity.fallback.reservation
        if reservation is not None:
            yield from _of_group(group, capacity, reservation, stack, account)
    for job in stack.settings.jobs:
        if job.capacity_block is not None:
            yield _of_job(f"{job.name}: {job.capacity_block.reservation}", job.capacity_block, account)


def _of_group(
    group: str, capacity: Capacity, reservation: Reservation, stack: Stack, account: Account
) -> Iterator[Remark]:
    subject = f"{group}: {reservation.source}"
    found = _described(reservation, account)
    if found is None:
        yield Remark(subject, "failure", _NOT_THERE, "look at fallback.reservation")
        return
    usable = 0
    for one in found:
        wrong = _wrong(one, capacity, stack)
        if wrong:
            yield Remark(f"{group}: {one['CapacityReservationId']}", "failure", wrong, "name another")
        else:
            usable += one["TotalInstanceCount"]
            yield from _doubts(group, one, capacity)
    if usable < reservation.count:
        advice = "lower fallback.reservation.count: what is beyond is on-demand that nobody has paid for"
        yield Remark(subject, "failure", f"{usable} instances, count is {reservation.count}", advice)
    else:
        yield Remark(subject, "ok", f"{usable} instances for {reservation.count}")


def _of_job(subject: str, block: CapacityBlock, account: Account) -> Remark:
    found = _shown([block.reservation], account)
    if not found:
        return Remark(subject, "failure", _NOT_THERE, "look at capacityBlock.reservation")
    [one] = found
    place = f"{one['InstanceType']} in {one['AvailabilityZone']}"
    if one.get("ReservationType") != "capacity-block":
        advice = "name it in fallback.reservation"
        return Remark(subject, "failure", "is an On-Demand Capacity Reservation, no Capacity Block", advice)
    if place != f"{block.instance_type} in {block.zone}":
        return Remark(subject, "failure", f"is {place}", "say so in capacityBlock")
    if one["State"] not in _TO_COME:
        return Remark(subject, "failure", f"is {one['State']}", "take it out of the stack file")
    times = f"{one['StartDate']:%Y-%m-%d %H:%M} to {one['EndDate']:%Y-%m-%d %H:%M} UTC"
    return Remark(subject, "ok", f"is {one['State']}: {place} from {times}")


def _described(reservation: Reservation, account: Account) -> list[dict[str, Any]] | None:
    """Return a reservation, or those of a resource group; ``None`` where there is no such thing."""
    if reservation.is_one:
        return _shown([reservation.source], account)
    pages = account.clients("resource-groups").get_paginator("list_group_resources")
    try:
        ids = [
            one["Identifier"]["ResourceArn"].rpartition("/")[2]
            for page in pages.paginate(Group=reservation.source)
            for one in page["Resources"]
        ]
    except ClientError as error:
        if error.response["Error"]["Code"].startswith(_MISSING):
            return None
        raise
    return _shown(ids, account) if ids else []


def _shown(ids: list[str], account: Account) -> list[dict[str, Any]] | None:
    pages = account.clients("ec2").get_paginator("describe_capacity_reservations")
    try:
        return [
            one for page in pages.paginate(CapacityReservationIds=ids) for one in page["CapacityReservations"]
        ]
    except ClientError as error:
        if error.response["Error"]["Code"].startswith(_MISSING):
            return None
        raise


def _wrong(one: dict[str, Any], capacity: Capacity, stack: Stack) -> str | None:
    """Return why the group's launches cannot go into a reservation."""
    if one.get("ReservationType") == "capacity-block":
        return "is a Capacity Block, which on-demand launches do not take"
    if one["State"] != "active":
        return f"is {one['State']}"
    if one["InstanceType"] not in capacity.types:
        return f"is for {one['InstanceType']}, which is none of the group's types"
    if one["AvailabilityZone"] not in stack.zones:
        return f"is in {one['AvailabilityZone']}, where the stack has no subnet"
    if one["InstancePlatform"] != _PLATFORM:
        return f"is for {one['InstancePlatform']}, instances are {_PLATFORM}"
    if one["Tenancy"] != "default":
        return f"is for tenancy {one['Tenancy']}, instances have the default one"
    return None


def _doubts(group: str, one: dict[str, Any], capacity: Capacity) -> Iterator[Remark]:
    subject, kind = f"{group}: {one['CapacityReservationId']}", one["InstanceType"]
    if capacity.instance_requirements is None and kind != capacity.types[0]:
        advice = f"put {kind} first in instanceTypes"
        yield Remark(subject, "warning", f"on-demand tries {capacity.types[0]} before {kind}", advice)
    if one["InstanceMatchCriteria"] == "open":
        found = "is open: any instance of the account that fits takes it"
        yield Remark(subject, "warning", found, "make it a targeted one")
    if "EndDate" in one:
        found = f"ends at {one['EndDate']:%Y-%m-%d %H:%M} UTC"
        yield Remark(subject, "warning", found, "take it out of the stack file before")
