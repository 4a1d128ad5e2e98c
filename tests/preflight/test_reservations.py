"""Checks of capacity reservations and Capacity Blocks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gpu_spot.preflight.checks import reservations
from pulumi_on_moto import AwsClients
from tests.preflight.worlds import error, results_of, stack, stub_operation

ID = "cr-0123456789abcdef0"
GROUP = "arn:aws:resource-groups:us-west-2:123456789012:group/reserved"
GOOD: dict[str, Any] = {
    "CapacityReservationId": ID,
    "InstanceType": "g6.xlarge",
    "InstancePlatform": "Linux/UNIX",
    "AvailabilityZone": "us-west-2a",
    "Tenancy": "default",
    "TotalInstanceCount": 2,
    "State": "active",
    "InstanceMatchCriteria": "targeted",
    "ReservationType": "default",
}


def results(clients: AwsClients, source: str = ID, count: int = 2, **given: Any) -> list[tuple[str, str]]:
    stub_operation(clients, "ec2", "DescribeCapacityReservations", {"CapacityReservations": [GOOD | given]})
    wanted = stack({"fallback": {"reservation": {"source": source, "count": count}}})
    return [(one.status, one.finding) for one in results_of(reservations, wanted, clients)]


def test_a_group_without_reservation_needs_no_request(clients: AwsClients) -> None:
    assert results_of(reservations, stack(), clients) == []


def test_a_matching_reservation_is_counted(clients: AwsClients) -> None:
    assert results(clients) == [("ok", "2 of 2 instances reserved")]


@pytest.mark.parametrize(
    ("ids", "status", "said"),
    [([ID], "ok", "2 of 2 instances reserved"), ([], "failure", "0 instances reserved, count is 2")],
)
def test_reservations_of_a_resource_group_are_counted(
    clients: AwsClients, ids: list[str], status: str, said: str
) -> None:
    arn = "arn:aws:ec2:us-west-2:123456789012:capacity-reservation/"
    listed = {"Resources": [{"Identifier": {"ResourceArn": f"{arn}{one}"}} for one in ids]}
    stub_operation(clients, "resource-groups", "ListGroupResources", listed)
    assert results(clients, GROUP) == [(status, said)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"State": "expired"}, "is expired"),
        ({"InstanceType": "p5.48xlarge"}, "is for p5.48xlarge, not a type of the group"),
        ({"AvailabilityZone": "us-west-2d"}, "is in us-west-2d, where the stack has no subnet"),
        ({"InstancePlatform": "Windows"}, "is for Windows, instances are Linux/UNIX"),
        ({"Tenancy": "dedicated"}, "is for tenancy dedicated, instances have the default one"),
        (
            {"ReservationType": "capacity-block"},
            "is a Capacity Block, which On-Demand launches cannot use",
        ),
    ],
)
def test_an_unusable_reservation_is_a_failure(clients: AwsClients, given: dict[str, Any], said: str) -> None:
    assert results(clients, **given) == [("failure", said), ("failure", "0 instances reserved, count is 2")]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"InstanceType": "g5.2xlarge"}, "On-Demand launches prefer g6.xlarge to g5.2xlarge"),
        ({"InstanceMatchCriteria": "open"}, "is open: any matching instance of the account uses it"),
        ({"EndDate": datetime(2026, 12, 1, 11, 30, tzinfo=UTC)}, "ends at 2026-12-01 11:30 UTC"),
    ],
)
def test_an_unexpected_property_of_a_reservation_is_a_warning(
    clients: AwsClients, given: dict[str, Any], said: str
) -> None:
    assert results(clients, **given) == [("warning", said), ("ok", "2 of 2 instances reserved")]


def test_a_count_above_the_reservation_is_a_failure(clients: AwsClients) -> None:
    assert results(clients, count=3) == [("failure", "2 instances reserved, count is 3")]


@pytest.mark.parametrize(
    "code", ["InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed"]
)
def test_a_missing_reservation_is_a_failure(clients: AwsClients, code: str) -> None:
    stub_operation(clients, "ec2", "DescribeCapacityReservations", error(code))
    wanted = stack({"fallback": {"reservation": {"source": ID, "count": 1}}})
    [one] = results_of(reservations, wanted, clients)
    assert (one.status, one.finding) == ("failure", "does not exist in this account and region")


BLOCK = {"reservation": ID, "instanceType": "g6.xlarge", "zone": "us-west-2a"}
BOUGHT: dict[str, Any] = {
    "ReservationType": "capacity-block",
    "State": "scheduled",
    "StartDate": datetime(2026, 12, 1, 11, 30, tzinfo=UTC),
    "EndDate": datetime(2026, 12, 2, 11, 30, tzinfo=UTC),
}


def job_result(clients: AwsClients, shown: dict[str, Any]) -> tuple[str, str]:
    stub_operation(clients, "ec2", "DescribeCapacityReservations", shown)
    job = {
        "name": "resnet",
        "capacity": {"kind": "mixed-asg", "target": 1, "instanceTypes": ["g6.xlarge"]},
        "repository": "https://example.com/vision/resnet.git",
        "revision": "0" * 40,
        "command": ["python", "train.py"],
        "capacityBlock": BLOCK,
    }
    [one] = results_of(reservations, stack(training=[job]), clients)
    return one.status, one.finding


def test_a_future_capacity_block_has_its_dates(clients: AwsClients) -> None:
    assert job_result(clients, {"CapacityReservations": [GOOD | BOUGHT]}) == (
        "ok",
        "is scheduled: g6.xlarge in us-west-2a from 2026-12-01 11:30 to 2026-12-02 11:30 UTC",
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ReservationType": "default"}, "is an On-Demand Capacity Reservation, not a Capacity Block"),
        ({"AvailabilityZone": "us-west-2b"}, "is g6.xlarge in us-west-2b"),
        ({"InstanceType": "p5.48xlarge"}, "is p5.48xlarge in us-west-2a"),
        ({"State": "payment-failed"}, "is payment-failed"),
        ({"State": "expired"}, "is expired"),
    ],
)
def test_a_block_that_the_job_cannot_use_is_a_failure(
    clients: AwsClients, given: dict[str, Any], said: str
) -> None:
    assert job_result(clients, {"CapacityReservations": [GOOD | BOUGHT | given]}) == ("failure", said)


def test_a_missing_capacity_block_is_a_failure(clients: AwsClients) -> None:
    assert job_result(clients, error("InvalidCapacityReservationId.NotFound")) == (
        "failure",
        "does not exist in this account and region",
    )
