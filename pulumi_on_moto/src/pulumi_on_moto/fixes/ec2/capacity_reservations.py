"""Reserved capacity, as ``DescribeCapacityReservations`` shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses.instances import InstanceResponse

from pulumi_on_moto.fixes.fix import Fix
from pulumi_on_moto.fixes.speedups.cached_responses import changed


def reserve(backend: Any, reservation: Mapping[str, Any]) -> None:
    """Add a reservation to ``DescribeCapacityReservations``, or replace that with the same id."""
    changed()
    _reserved(backend)[reservation["CapacityReservationId"]] = reservation


def _reserved(backend: Any) -> dict[str, Mapping[str, Any]]:
    if not hasattr(backend, "local_reservations"):
        backend.local_reservations = {}
    reservations: dict[str, Mapping[str, Any]] = backend.local_reservations
    return reservations


def _describe(response: InstanceResponse) -> ActionResult:
    reservations = _reserved(response.ec2_backend)
    requested_ids = response._get_param("CapacityReservationIds", []) or list(reservations)
    for reservation_id in requested_ids:
        if reservation_id not in reservations:
            raise EC2ClientError(
                "InvalidCapacityReservationId.NotFound",
                f"The capacity reservation ID '{reservation_id}' does not exist",
            )
    return ActionResult(
        {"CapacityReservations": [reservations[reservation_id] for reservation_id in requested_ids]}
    )


CAPACITY_RESERVATIONS: Final = Fix(
    "capacity reservations",
    "DescribeCapacityReservations is missing",
    "shows them; here those of ``capacity_reservations.reserve``; no launch uses them",
    ((InstanceResponse, "describe_capacity_reservations", _describe),),
)
