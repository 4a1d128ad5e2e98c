"""Reserved capacity is looked at before somebody pays for it twice."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gpu_spot.preflight.checks import reservations
from pulumi_on_moto import AwsClients
from tests.preflight.worlds import answer, error, remarks, stack

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


def found(clients: AwsClients, source: str = ID, count: int = 2, **given: Any) -> list[tuple[str, str]]:
    answer(clients, "ec2", "DescribeCapacityReservations", {"CapacityReservations": [GOOD | given]})
    wanted = stack({"fallback": {"reservation": {"source": source, "count": count}}})
    return [(one.status, one.found) for one in remarks(reservations, wanted, clients)]


def test_a_group_without_one_is_not_asked_about(clients: AwsClients) -> None:
    assert remarks(reservations, stack(), clients) == []


def test_one_that_fits_is_counted(clients: AwsClients) -> None:
    assert found(clients) == [("ok", "2 instances for 2")]


@pytest.mark.parametrize(
    ("ids", "status", "said"),
    [([ID], "ok", "2 instances for 2"), ([], "failure", "0 instances, count is 2")],
)
def test_those_of_a_resource_group_are_found_by_its_list(
    clients: AwsClients, ids: list[str], status: str, said: str
) -> None:
    arn = "arn:aws:ec2:us-west-2:123456789012:capacity-reservation/"
    listed = {"Resources": [{"Identifier": {"ResourceArn": f"{arn}{one}"}} for one in ids]}
    answer(clients, "resource-groups", "ListGroupResources", listed)
    assert found(clients, GROUP) == [(status, said)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"State": "expired"}, "is expired"),
        ({"InstanceType": "p5.48xlarge"}, "is for p5.48xlarge, which is none of the group's types"),
        ({"AvailabilityZone": "us-west-2d"}, "is in us-west-2d, where the stack has no subnet"),
        ({"InstancePlatform": "Windows"}, "is for Windows, instances are Linux/UNIX"),
        ({"Tenancy": "dedicated"}, "is for tenancy dedicated, instances have the default one"),
        (
            {"ReservationType": "capacity-block"},
            "is a Capacity Block, which on-demand launches do not take",
        ),
    ],
)
def test_one_that_no_launch_can_enter_is_a_failure(
    clients: AwsClients, given: dict[str, Any], said: str
) -> None:
    assert found(clients, **given) == [("failure", said), ("failure", "0 instances, count is 2")]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"InstanceType": "g5.2xlarge"}, "on-demand tries g6.xlarge before g5.2xlarge"),
        ({"InstanceMatchCriteria": "open"}, "is open: any instance of the account that fits takes it"),
        ({"EndDate": datetime(2026, 12, 1, 11, 30, tzinfo=UTC)}, "ends at 2026-12-01 11:30 UTC"),
    ],
)
def test_what_may_surprise_is_a_warning(clients: AwsClients, given: dict[str, Any], said: str) -> None:
    assert found(clients, **given) == [("warning", said), ("ok", "2 instances for 2")]


def test_more_than_is_reserved_is_a_failure(clients: AwsClients) -> None:
    assert found(clients, count=3) == [("failure", "2 instances, count is 3")]


@pytest.mark.parametrize(
    "code", ["InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed"]
)
def test_one_that_is_not_there_is_a_failure(clients: AwsClients, code: str) -> None:
    answer(clients, "ec2", "DescribeCapacityReservations", error(code))
    wanted = stack({"fallback": {"reservation": {"source": ID, "count": 1}}})
    [one] = remarks(reservations, wanted, clients)
    assert (one.status, one.found) == ("failure", "is not in this account and region")


BLOCK = {"reservation": ID, "instanceType": "g6.xlarge", "zone": "us-west-2a"}
BOUGHT: dict[str, Any] = {
    "ReservationType": "capacity-block",
    "State": "scheduled",
    "StartDate": datetime(2026, 12, 1, 11, 30, tzinfo=UTC),
    "EndDate": datetime(2026, 12, 2, 11, 30, tzinfo=UTC),
}


def of_job(clients: AwsClients, shown: dict[str, Any]) -> tuple[str, str]:
    answer(clients, "ec2", "DescribeCapacityReservations", shown)
    job = {
        "name": "resnet",
        "capacity": {"kind": "mixed-asg", "target": 1, "instanceTypes": ["g6.xlarge"]},
        "repository": "https://example.com/vision/resnet.git",
        "revision": "0" * 40,
        "command": ["python", "train.py"],
        "capacityBlock": BLOCK,
    }
    [one] = remarks(reservations, stack(training=[job]), clients)
    return one.status, one.found


def test_a_block_that_is_to_come_says_when(clients: AwsClients) -> None:
    assert of_job(clients, {"CapacityReservations": [GOOD | BOUGHT]}) == (
        "ok",
        "is scheduled: g6.xlarge in us-west-2a from 2026-12-01 11:30 to 2026-12-02 11:30 UTC",
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ReservationType": "default"}, "is an On-Demand Capacity Reservation, no Capacity Block"),
        ({"AvailabilityZone": "us-west-2b"}, "is g6.xlarge in us-west-2b"),
        ({"InstanceType": "p5.48xlarge"}, "is p5.48xlarge in us-west-2a"),
        ({"State": "payment-failed"}, "is payment-failed"),
        ({"State": "expired"}, "is expired"),
    ],
)
def test_a_block_that_the_job_cannot_use_is_a_failure(
    clients: AwsClients, given: dict[str, Any], said: str
) -> None:
    assert of_job(clients, {"CapacityReservations": [GOOD | BOUGHT | given]}) == ("failure", said)


def test_a_block_that_is_not_there_is_a_failure(clients: AwsClients) -> None:
    assert of_job(clients, error("InvalidCapacityReservationId.NotFound")) == (
        "failure",
        "is not in this account and region",
    )
