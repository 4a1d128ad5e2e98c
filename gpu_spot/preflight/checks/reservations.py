"""Whether the capacity that groups reckon as reserved is there, and theirs to use.

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
from infra.schema.reservation import Reservation

NAME: Final = "reservations"
_PLATFORM: Final = "Linux/UNIX"
_MISSING: Final = ("InvalidCapacityReservationId", "NotFoundException")


def look(stack: Stack, account: Account) -> Iterator[Remark]:
    """Look at each group's reservation."""
    for group, capacity in stack.settings.capacities.items():
        reservation = capacity.fallback.reservation
        if reservation is not None:
            yield from _of_group(group, capacity, reservation, stack, account)


def _of_group(
    group: str, capacity: Capacity, reservation: Reservation, stack: Stack, account: Account
) -> Iterator[Remark]:
    subject = f"{group}: {reservation.source}"
    try:
        found = _described(reservation, account)
    except ClientError as error:
        if not error.response["Error"]["Code"].startswith(_MISSING):
            raise
        yield Remark(subject, "failure", "is not in this account and region", "look at fallback.reservation")
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


def _described(reservation: Reservation, account: Account) -> list[dict[str, Any]]:
    ids = [reservation.source]
    if not reservation.is_one:
        pages = account.clients("resource-groups").get_paginator("list_group_resources")
        ids = [
            one["Identifier"]["ResourceArn"].rpartition("/")[2]
            for page in pages.paginate(Group=reservation.source)
            for one in page["Resources"]
        ]
    if not ids:
        return []
    described = account.clients("ec2").get_paginator("describe_capacity_reservations")
    return [
        one for page in described.paginate(CapacityReservationIds=ids) for one in page["CapacityReservations"]
    ]


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
