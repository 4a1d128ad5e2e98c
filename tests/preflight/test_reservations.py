"""Checks of capacity reservations and Capacity Blocks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.checks import clusters, offerings, reservations
from pulumi_on_moto import AwsClients
from tests.infra import training
from tests.preflight.worlds import ZONES, error, offered, on_kubernetes, results_of, stack, stub_operation

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
    return [(one.status, one.finding) for one in results_of(reservations.run, wanted, clients)]


def test_a_group_without_reservation_needs_no_request(clients: AwsClients) -> None:
    assert results_of(reservations.run, stack(), clients) == []


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
        ({"ReservationType": "capacity-block"}, "is a Capacity Block, which On-Demand launches cannot use"),
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
    [one] = results_of(reservations.run, wanted, clients)
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
    [one] = results_of(reservations.run, stack(training=[training.job(capacityBlock=BLOCK)]), clients)
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


ROLE = "arn:aws:iam::123456789012:role/deploy"
CREATE = {"access": [{"role": ROLE, "accessPolicy": "admin"}], "publicCidrs": ["192.0.2.0/24"]}
VPC = "vpc-0123456789abcdef0"


ANOTHER_VPC = {"vpcId": "vpc-other", "endpointPublicAccess": True}
PRIVATE = {"vpcId": VPC, "endpointPublicAccess": False}
BY_MAP = {"authenticationMode": "CONFIG_MAP"}


def describe(clients: AwsClients, **changes: Any) -> None:
    cluster = {
        "name": "research",
        "status": "ACTIVE",
        "version": "1.36",
        "resourcesVpcConfig": {"vpcId": VPC, "endpointPublicAccess": True},
        "accessConfig": {"authenticationMode": "API"},
        **changes,
    }
    stub_operation(clients, "eks", "DescribeCluster", {"cluster": cluster})


@pytest.fixture
def account(clients: AwsClients) -> AwsClients:
    """An account with a cluster that fits, and with all that a new one needs."""
    describe(clients)
    caller = clients("sts").get_caller_identity()["Arn"]
    clients("iam").create_role(RoleName="nodes", AssumeRolePolicyDocument="{}")
    stub_operation(clients, "eks", "ListAccessEntries", {"accessEntries": [caller]})
    addons = {"addons": [{"addonName": "vpc-cni", "addonVersions": [{"addonVersion": "v1.21.1-eksbuild.1"}]}]}
    stub_operation(clients, "eks", "DescribeAddonVersions", addons)
    offered(clients, *(f"m7g.large@{zone}" for zone in ZONES))
    return clients


def problems(results: list[CheckResult]) -> list[tuple[str, str, str]]:
    """Return status, key and finding of all but what is right or never known."""
    return [(one.status, one.key, one.finding) for one in results if one.status not in ("ok", "not known")]


def test_without_a_cluster_nothing_is_asked(clients: AwsClients) -> None:
    bare = on_kubernetes()
    without = type(bare)("dev", bare.settings.model_copy(update={"kubernetes": None}), ())
    assert results_of(clusters.run, without, clients) == []


def test_a_cluster_that_fits_is_ok_and_what_runs_in_it_not_known(account: AwsClients) -> None:
    found = results_of(clusters.run, on_kubernetes(), account)
    assert [(one.status, one.subject) for one in found] == [("ok", "research"), ("not known", "research")]


@pytest.mark.parametrize(
    ("changes", "status", "key", "words"),
    [
        ({"status": "FAILED"}, "failure", "kubernetes.cluster", "FAILED"),
        ({"version": "1.35"}, "failure", "kubernetes.version", "has 1.35; objects are rendered for 1.36"),
        ({"resourcesVpcConfig": ANOTHER_VPC}, "failure", "network.vpcId", "is in vpc-other"),
        ({"accessConfig": BY_MAP}, "failure", "kubernetes.cluster", "no access entries"),
        ({"resourcesVpcConfig": PRIVATE}, "warning", "kubernetes.cluster", "private only"),
    ],
)
def test_a_cluster_that_does_not_fit(
    account: AwsClients, changes: dict[str, Any], status: str, key: str, words: str
) -> None:
    describe(account, **changes)
    [(found_status, found_key, finding)] = problems(results_of(clusters.run, on_kubernetes(), account))
    assert (found_status, found_key) == (status, key)
    assert words in finding


def test_a_missing_cluster_a_missing_role_and_no_entry(account: AwsClients) -> None:
    stub_operation(account, "eks", "ListAccessEntries", {"accessEntries": []})
    found = problems(results_of(clusters.run, on_kubernetes(nodeRole="gone"), account))
    assert [(status, key) for status, key, _ in found] == [
        ("failure", "kubernetes.nodeRole"),
        ("warning", ""),
    ]
    stub_operation(account, "eks", "DescribeCluster", error("ResourceNotFoundException"))
    assert problems(results_of(clusters.run, on_kubernetes(), account)) == [
        ("failure", "kubernetes.cluster", "the cluster does not exist")
    ]


def created(account: AwsClients, **changes: Any) -> list[CheckResult]:
    return results_of(clusters.run, on_kubernetes(create={**CREATE, **changes}), account)


def test_a_new_cluster_is_checked_for_what_creating_it_needs(account: AwsClients) -> None:
    assert problems(created(account, addonVersions={"vpc-cni": "v1.21.1-eksbuild.1"})) == []


def test_types_and_addons_that_are_not_offered(account: AwsClients) -> None:
    offered(account, f"m7g.large@{ZONES[0]}")
    private = {"publicCidrs": [], "allowedSources": ["10.0.0.0/16"]}
    found = created(account, addonVersions={"vpc-cni": "v1.99.0-eksbuild.1"}, **private)
    assert [(status, key) for status, key, _ in problems(found)] == [
        ("warning", "kubernetes.create.systemInstanceType"),
        ("failure", "kubernetes.create.addonVersions.vpc-cni"),
        ("warning", "kubernetes.create.publicCidrs"),
    ]
    offered(account)
    assert ("failure", "kubernetes.create.systemInstanceType") in [
        (status, key) for status, key, _ in problems(created(account))
    ]


def test_types_of_pods_are_looked_for_too(clients: AwsClients) -> None:
    offered(clients)
    found = results_of(offerings.run, on_kubernetes(), clients)
    assert [(one.subject, one.status, one.key) for one in found] == [
        ("web", "failure", "services[0].capacity.instanceTypes")
    ]
