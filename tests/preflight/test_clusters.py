"""Checks of the cluster of entries on Kubernetes, and of the services that a region has."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from contracts import names
from gpu_spot.preflight.actions import ACTIONS
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.checks import clusters, offerings, region_services
from pulumi_on_moto import AwsClients
from tests.preflight.worlds import ZONES, declared, error, on_kubernetes, results_of, statuses, stub_operation

ROLE = "arn:aws:iam::123456789012:role/deploy"
CREATE = {"access": [{"role": ROLE, "accessPolicy": "admin"}], "publicCidrs": ["192.0.2.0/24"]}
VPC = "vpc-0123456789abcdef0"


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
    stub_operation(clients, "eks", "ListClusters", {"clusters": ["a"] * 3})
    versions(clients)
    addons = {"addons": [{"addonName": "vpc-cni", "addonVersions": [{"addonVersion": "v1.21.1-eksbuild.1"}]}]}
    stub_operation(clients, "eks", "DescribeAddonVersions", addons)
    quota = {"Quota": {"QuotaName": "Clusters", "Value": 100.0}}
    stub_operation(clients, "service-quotas", "GetServiceQuota", quota)
    zones(clients)
    offer(clients, *ZONES)
    return clients


def versions(clients: AwsClients, status: str = "STANDARD_SUPPORT", days: int = 300) -> None:
    end = datetime.now(UTC) + timedelta(days=days)
    listed = {"clusterVersion": "1.36", "versionStatus": status, "endOfStandardSupportDate": end}
    stub_operation(clients, "eks", "DescribeClusterVersions", {"clusterVersions": [listed]})


def zones(clients: AwsClients, id_: str = "usw2-az1") -> None:
    listed = [{"ZoneName": ZONES[0], "ZoneId": id_}, {"ZoneName": ZONES[1], "ZoneId": "usw2-az2"}]
    stub_operation(clients, "ec2", "DescribeAvailabilityZones", {"AvailabilityZones": listed})


def offer(clients: AwsClients, *where: str) -> None:
    pools = [{"InstanceType": "m7g.large", "Location": zone} for zone in where]
    stub_operation(clients, "ec2", "DescribeInstanceTypeOfferings", {"InstanceTypeOfferings": pools})


def problems(results: list[CheckResult]) -> list[tuple[str, str, str]]:
    """Return status, key and finding of all but what is right or never known."""
    return [(one.status, one.key, one.finding) for one in results if one.status not in ("ok", "not known")]


def test_without_a_cluster_nothing_is_asked(clients: AwsClients) -> None:
    bare = on_kubernetes()
    without = type(bare)("dev", bare.settings.model_copy(update={"kubernetes": None}), ())
    assert results_of(clusters, without, clients) == []


def test_a_cluster_that_fits_is_ok_and_what_runs_in_it_not_known(account: AwsClients) -> None:
    found = results_of(clusters, on_kubernetes(), account)
    assert [(one.status, one.subject) for one in found] == [("ok", "research"), ("not known", "research")]


@pytest.mark.parametrize(
    ("changes", "status", "key", "words"),
    [
        ({"status": "FAILED"}, "failure", "kubernetes.cluster", "FAILED"),
        ({"version": "1.35"}, "failure", "kubernetes.version", "has 1.35; objects are rendered for 1.36"),
        (
            {"resourcesVpcConfig": {"vpcId": "vpc-other", "endpointPublicAccess": True}},
            "failure",
            "network.vpcId",
            "is in vpc-other",
        ),
        (
            {"accessConfig": {"authenticationMode": "CONFIG_MAP"}},
            "failure",
            "kubernetes.cluster",
            "no access entries",
        ),
        (
            {"resourcesVpcConfig": {"vpcId": VPC, "endpointPublicAccess": False}},
            "warning",
            "kubernetes.cluster",
            "private only",
        ),
    ],
)
def test_a_cluster_that_does_not_fit(
    account: AwsClients, changes: dict[str, Any], status: str, key: str, words: str
) -> None:
    describe(account, **changes)
    [(found_status, found_key, finding)] = problems(results_of(clusters, on_kubernetes(), account))
    assert (found_status, found_key) == (status, key)
    assert words in finding


def test_proxies_must_reach_the_api_and_the_pods(account: AwsClients) -> None:
    stack = on_kubernetes(http={"port": 8000})
    network = {"vpcId": VPC, "endpointPublicAccess": True, "endpointPrivateAccess": True}
    describe(account, resourcesVpcConfig=network, kubernetesNetworkConfig={"ipFamily": "ipv4"})
    assert problems(results_of(clusters, stack, account)) == []
    describe(
        account,
        resourcesVpcConfig={**network, "endpointPrivateAccess": False},
        kubernetesNetworkConfig={"ipFamily": "ipv6"},
    )
    found = [
        (status, finding.split(":")[0])
        for status, _, finding in problems(results_of(clusters, stack, account))
    ]
    assert found == [
        ("failure", "its pods have IPv6 addresses only, which proxies of http do not reach"),
        ("warning", "the API has no private endpoint"),
    ]


def test_a_missing_cluster_a_missing_role_and_no_entry(account: AwsClients) -> None:
    stub_operation(account, "eks", "ListAccessEntries", {"accessEntries": []})
    found = problems(results_of(clusters, on_kubernetes(nodeRole="gone"), account))
    assert [(status, key) for status, key, _ in found] == [
        ("failure", "kubernetes.nodeRole"),
        ("warning", ""),
    ]
    stub_operation(account, "eks", "DescribeCluster", error("ResourceNotFoundException"))
    assert problems(results_of(clusters, on_kubernetes(), account)) == [
        ("failure", "kubernetes.cluster", "the cluster does not exist")
    ]


def created(account: AwsClients, **changes: Any) -> list[CheckResult]:
    return results_of(clusters, on_kubernetes(create={**CREATE, **changes}), account)


def test_a_new_cluster_is_checked_for_what_creating_it_needs(account: AwsClients) -> None:
    stub_operation(account, "eks", "DescribeCluster", error("ResourceNotFoundException"))
    found = created(account, addonVersions={"vpc-cni": "v1.21.1-eksbuild.1"})
    assert problems(found) == []
    assert found[0].finding == "100, 3 in use; this stack adds 1"


def test_a_name_in_use_fails_unless_this_stack_has_it(account: AwsClients) -> None:
    assert [key for _, key, _ in problems(created(account))] == ["kubernetes.cluster"]
    describe(account, tags={names.TAG_STACK: "dev"})
    assert problems(created(account)) == []


@pytest.mark.parametrize(
    ("status", "days", "expected"),
    [
        ("STANDARD_SUPPORT", 61, None),
        ("STANDARD_SUPPORT", 59, "warning"),
        ("EXTENDED_SUPPORT", -1, "failure"),
        ("UNSUPPORTED", -400, "failure"),
    ],
)
def test_a_versions_support(account: AwsClients, status: str, days: int, expected: str | None) -> None:
    describe(account, tags={names.TAG_STACK: "dev"})
    versions(account, status, days)
    found = problems(created(account))
    assert [(one, key) for one, key, _ in found] == ([(expected, "kubernetes.version")] if expected else [])


def test_zones_types_and_addons_that_are_not_offered(account: AwsClients) -> None:
    describe(account, tags={names.TAG_STACK: "dev"})
    zones(account, "use1-az3")
    offer(account, ZONES[0])
    private = {"publicCidrs": [], "allowedSources": ["10.0.0.0/16"]}
    found = created(account, addonVersions={"vpc-cni": "v1.99.0-eksbuild.1"}, **private)
    assert [(status, key) for status, key, _ in problems(found)] == [
        ("failure", "network.zones"),
        ("warning", "kubernetes.create.systemInstanceType"),
        ("failure", "kubernetes.create.addonVersions.vpc-cni"),
        ("warning", "kubernetes.create.publicCidrs"),
    ]
    offer(account)
    assert ("failure", "kubernetes.create.systemInstanceType") in [
        (status, key) for status, key, _ in problems(created(account))
    ]


def test_types_of_pods_are_looked_for_too(clients: AwsClients) -> None:
    offer(clients)
    found = results_of(offerings, on_kubernetes(), clients)
    assert [(one.subject, one.status, one.key) for one in found] == [
        ("web", "failure", "services[0].capacity.instanceTypes")
    ]


def test_services_that_a_region_lacks(clients: AwsClients) -> None:
    used = ("aws:fis/experimentTemplate:ExperimentTemplate", "aws:mq/broker:Broker", "aws:iam/role:Role")
    stack = on_kubernetes([declared(type_) for type_ in used])
    available = {"Parameters": [{"Name": "a", "Value": "mq"}]}
    stub_operation(clients, "ssm", "GetParametersByPath", available)
    found = results_of(region_services, stack, clients)
    assert [(one.subject, one.status, one.key) for one in found] == [
        ("fis", "failure", "services[].capacity.drill"),
        ("us-west-2", "ok", ""),
    ]
    stub_operation(clients, "ssm", "GetParametersByPath", {"Parameters": []})
    assert statuses(results_of(region_services, stack, clients)) == {"us-west-2": "not known"}


def test_all_types_belong_to_services_of_awss_list(clients: AwsClients) -> None:
    """moto has the parameters that AWS answered."""
    found = results_of(region_services, on_kubernetes([declared(type_) for type_ in ACTIONS]), clients)
    assert {one.status for one in found} == {"ok"}
