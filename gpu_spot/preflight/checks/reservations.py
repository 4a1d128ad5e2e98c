"""Capacity reservations of groups and Capacity Blocks of jobs.

Source: ``DescribeCapacityReservations``, and for a resource group ``ListGroupResources``. A launch uses a
reservation of its type, platform and zone (EC2 guide, "On-Demand Capacity Reservations").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult, error_code
from gpu_spot.preflight.stack import Stack
from infra.schema import Capacity
from infra.schema.reservation import CapacityBlock, Reservation

_PLATFORM: Final = "Linux/UNIX"
_MISSING: Final = ("InvalidCapacityReservationId", "NotFoundException")
_NOT_FOUND: Final = "does not exist in this account and region"
_USABLE_STATES: Final = ("payment-pending", "pending", "scheduled", "active")


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Check each group's reservation and each job's Capacity Block."""
    for group, capacity in stack.settings.capacities.items():
        reservation = capacity.fallback.reservation
        if reservation is not None:
            key = stack.key(group, "capacity.fallback.reservation")
            results = _check_group(group, capacity, reservation, stack, account)
            yield from (replace(result, key=key) for result in results)
    for job in stack.settings.jobs:
        if job.capacity_block is not None:
            subject = f"{job.name}: {job.capacity_block.reservation}"
            result = _check_capacity_block(subject, job.capacity_block, account)
            yield replace(result, key=stack.key(job.name, "capacityBlock"))


def _check_group(
    group: str, capacity: Capacity, reservation: Reservation, stack: Stack, account: Account
) -> Iterator[CheckResult]:
    subject = f"{group}: {reservation.source}"
    described = _describe_reservations(reservation, account)
    if described is None:
        yield CheckResult(subject, "failure", _NOT_FOUND, "check fallback.reservation")
        return
    usable = 0
    for reserved in described:
        if problem := _problem(reserved, capacity, stack):
            identity = f"{group}: {reserved['CapacityReservationId']}"
            yield CheckResult(identity, "failure", problem, "use another reservation")
        else:
            usable += reserved["TotalInstanceCount"]
            yield from _warnings(group, reserved, capacity)
    if usable < reservation.count:
        finding = f"{usable} instances reserved, count is {reservation.count}"
        advice = "lower fallback.reservation.count: instances beyond the reservation are charged On-Demand"
        yield CheckResult(subject, "failure", finding, advice)
    else:
        yield CheckResult(subject, "ok", f"{usable} of {reservation.count} instances reserved")


def _check_capacity_block(subject: str, block: CapacityBlock, account: Account) -> CheckResult:
    described = _describe_by_ids([block.reservation], account)
    if not described:
        return CheckResult(subject, "failure", _NOT_FOUND, "check capacityBlock.reservation")
    [reservation] = described
    pool = f"{reservation['InstanceType']} in {reservation['AvailabilityZone']}"
    if reservation.get("ReservationType") != "capacity-block":
        finding = "is an On-Demand Capacity Reservation, not a Capacity Block"
        return CheckResult(subject, "failure", finding, "use it in fallback.reservation")
    if pool != f"{block.instance_type} in {block.zone}":
        return CheckResult(subject, "failure", f"is {pool}", "correct capacityBlock")
    if reservation["State"] not in _USABLE_STATES:
        return CheckResult(subject, "failure", f"is {reservation['State']}", "remove it from the stack file")
    times = f"{reservation['StartDate']:%Y-%m-%d %H:%M} to {reservation['EndDate']:%Y-%m-%d %H:%M} UTC"
    return CheckResult(subject, "ok", f"is {reservation['State']}: {pool} from {times}")


def _describe_reservations(reservation: Reservation, account: Account) -> list[dict[str, Any]] | None:
    """Return a reservation, or those of a resource group; None if it does not exist."""
    if reservation.is_single:
        return _describe_by_ids([reservation.source], account)
    pages = account.clients("resource-groups").get_paginator("list_group_resources")
    try:
        ids = [
            resource["Identifier"]["ResourceArn"].rpartition("/")[2]
            for page in pages.paginate(Group=reservation.source)
            for resource in page["Resources"]
        ]
    except ClientError as error:
        if error_code(error).startswith(_MISSING):
            return None
        raise
    return _describe_by_ids(ids, account) if ids else []


def _describe_by_ids(ids: list[str], account: Account) -> list[dict[str, Any]] | None:
    pages = account.clients("ec2").get_paginator("describe_capacity_reservations")
    try:
        return [
            reservation
            for page in pages.paginate(CapacityReservationIds=ids)
            for reservation in page["CapacityReservations"]
        ]
    except ClientError as error:
        if error_code(error).startswith(_MISSING):
            return None
        raise


def _problem(reservation: dict[str, Any], capacity: Capacity, stack: Stack) -> str | None:
    """Return why the group's launches cannot use a reservation, None if they can."""
    if reservation.get("ReservationType") == "capacity-block":
        return "is a Capacity Block, which On-Demand launches cannot use"
    if reservation["State"] != "active":
        return f"is {reservation['State']}"
    if reservation["InstanceType"] not in capacity.types:
        return f"is for {reservation['InstanceType']}, not a type of the group"
    if reservation["AvailabilityZone"] not in stack.zones:
        return f"is in {reservation['AvailabilityZone']}, where the stack has no subnet"
    if reservation["InstancePlatform"] != _PLATFORM:
        return f"is for {reservation['InstancePlatform']}, instances are {_PLATFORM}"
    if reservation["Tenancy"] != "default":
        return f"is for tenancy {reservation['Tenancy']}, instances have the default one"
    return None


def _warnings(group: str, reservation: dict[str, Any], capacity: Capacity) -> Iterator[CheckResult]:
    subject, kind = f"{group}: {reservation['CapacityReservationId']}", reservation["InstanceType"]
    if capacity.instance_requirements is None and kind != capacity.types[0]:
        finding = f"On-Demand launches prefer {capacity.types[0]} to {kind}"
        yield CheckResult(subject, "warning", finding, f"put {kind} first in instanceTypes")
    if reservation["InstanceMatchCriteria"] == "open":
        finding = "is open: any matching instance of the account uses it"
        yield CheckResult(subject, "warning", finding, "use a targeted reservation")
    if "EndDate" in reservation:
        finding = f"ends at {reservation['EndDate']:%Y-%m-%d %H:%M} UTC"
        yield CheckResult(subject, "warning", finding, "remove it from the stack file before")
