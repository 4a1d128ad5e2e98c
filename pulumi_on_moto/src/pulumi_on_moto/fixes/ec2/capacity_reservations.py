"""Capacity that somebody has reserved, as ``DescribeCapacityReservations`` shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses.instances import InstanceResponse

from pulumi_on_moto.fixes.fix import Fix
from pulumi_on_moto.fixes.speedups.answers import changed


def reserve(backend: Any, reservation: Mapping[str, Any]) -> None:
    """Have ``DescribeCapacityReservations`` show this; of one id the newest counts."""
    changed()
    _reserved(backend)[reservation["CapacityReservationId"]] = reservation


def _reserved(backend: Any) -> dict[str, Mapping[str, Any]]:
    if not hasattr(backend, "local_reservations"):
        backend.local_reservations = {}
    known: dict[str, Mapping[str, Any]] = backend.local_reservations
    return known


def _describe(response: InstanceResponse) -> ActionResult:
    known = _reserved(response.ec2_backend)
    wanted = response._get_param("CapacityReservationIds", []) or list(known)
    for one in wanted:
        if one not in known:
            raise EC2ClientError(
                "InvalidCapacityReservationId.NotFound", f"The capacity reservation ID '{one}' does not exist"
            )
    return ActionResult({"CapacityReservations": [known[one] for one in wanted]})


CAPACITY_RESERVATIONS: Final = Fix(
    "capacity reservations",
    "DescribeCapacityReservations is missing",
    "shows them; here those that ``capacity_reservations.reserve`` was told, and no launch fills one",
    ((InstanceResponse, "describe_capacity_reservations", _describe),),
)
