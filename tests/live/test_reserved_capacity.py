"""Capacity reservations of a test are visible to the controller's EC2 adapter."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from botocore.exceptions import ClientError

from lambdas.aws.capacity.capacity_blocks import CapacityBlocks
from pulumi_on_moto.fixes.ec2.placement import reserve
from tests.live.world import Running

BLOCK = "cr-0123456789abcdef0"
ENDS = datetime(2026, 12, 1, 11, 30, tzinfo=UTC)


def block(running: Running, state: str) -> float | None:
    shown = {"CapacityReservationId": BLOCK, "State": state, "EndDate": ENDS}
    reserve(running.cloud._instances.ec2, shown)
    return CapacityBlocks(running.clients("ec2"))._end(BLOCK)


def test_a_block_is_there_as_long_as_it_is_active(running: Running) -> None:
    assert block(running, "scheduled") is None
    assert block(running, "active") == ENDS.timestamp()
    assert block(running, "expired") is None


def test_an_unknown_reservation_does_not_exist(running: Running) -> None:
    with pytest.raises(ClientError, match=r"InvalidCapacityReservationId\.NotFound"):
        running.clients("ec2").describe_capacity_reservations(CapacityReservationIds=["cr-00000000"])
