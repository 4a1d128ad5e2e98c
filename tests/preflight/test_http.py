"""Checks of addresses: certificate, hosted zone, subnets, types, and their part of quotas and costs."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_spot.preflight.checks import http, limits, monthly_cost, offerings
from gpu_spot.preflight.checks.account import quotas
from gpu_spot.preflight.stack import Declared, Stack
from pulumi_on_moto import AwsClients
from tests.preflight.worlds import error, on_kubernetes, results_of, service, stack, statuses, stub_operation

CERTIFICATE = "arn:aws:acm:us-west-2:123456789012:certificate/00000000-0000-0000-0000-000000000000"
NAMED = {"certificateArn": CERTIFICATE, "domain": "chat.example.com", "hostedZoneId": "Z0123"}


def of(declared: tuple[Declared, ...] = (), **http_keys: Any) -> Stack:
    entry = service(command=["serve"], http={"port": 8000, **http_keys})
    return stack(declared=declared, services=[entry])


def certificate(status: str = "ISSUED", name: str = "*.example.com") -> dict[str, Any]:
    return {"Certificate": {"Status": status, "DomainName": name, "SubjectAlternativeNames": [name]}}


def zone(name: str) -> dict[str, Any]:
    return {"HostedZone": {"Id": "/hostedzone/Z0123", "Name": name, "CallerReference": "c"}}


@pytest.mark.parametrize(
    ("reply", "status", "says"),
    [
        (certificate(), "ok", "issued for chat.example.com"),
        (certificate(name="chat.example.com"), "ok", "issued for chat.example.com"),
        (certificate("PENDING_VALIDATION"), "failure", "status PENDING_VALIDATION"),
        (certificate(name="example.com"), "failure", "for example.com, not for chat.example.com"),
        (certificate(name="*.a.example.com"), "failure", "not for chat.example.com"),
        (error("ResourceNotFoundException"), "failure", "does not exist"),
    ],
)
def test_a_certificate_must_be_issued_for_the_domain(
    clients: AwsClients, reply: dict[str, Any], status: str, says: str
) -> None:
    stub_operation(clients, "acm", "DescribeCertificate", reply)
    stub_operation(clients, "route53", "GetHostedZone", zone("example.com."))
    found, _ = results_of(http, of(**NAMED), clients)
    assert (found.status, found.key) == (status, "services[0].http.certificateArn")
    assert says in found.finding


def test_without_a_domain_callers_need_a_name_of_the_certificate(clients: AwsClients) -> None:
    stub_operation(clients, "acm", "DescribeCertificate", certificate())
    [found] = results_of(http, of(certificateArn=CERTIFICATE), clients)
    assert (found.status, found.advice) == ("warning", "set http.domain")


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (zone("example.com."), "ok"),
        (zone("chat.example.com."), "ok"),
        (zone("ample.com."), "failure"),
        (error("NoSuchHostedZone"), "failure"),
    ],
)
def test_a_hosted_zone_must_hold_the_domain(clients: AwsClients, reply: dict[str, Any], status: str) -> None:
    stub_operation(clients, "acm", "DescribeCertificate", certificate())
    stub_operation(clients, "route53", "GetHostedZone", reply)
    _, found = results_of(http, of(**NAMED), clients)
    assert (found.status, found.key) == (status, "services[0].http.hostedZoneId")


def test_subnets_of_a_load_balancer_are_in_zones_of_their_own(clients: AwsClients) -> None:
    ids = ["subnet-0000000a", "subnet-0000000b"]
    network = {"vpcId": "vpc-0000000a", "subnets": {"us-west-2a": "subnet-00000001", "us-west-2b": ids[1]}}
    entry = service(command=["serve"], http={"port": 8000, "subnets": ids})
    given = stack(network=network, services=[entry])

    def finding(*zones: str, free: int = 200) -> tuple[str, str]:
        subnets = [
            {"SubnetId": subnet, "AvailabilityZone": f"us-west-2{letter}", "AvailableIpAddressCount": free}
            for subnet, letter in zip(ids, zones, strict=False)
        ]
        stub_operation(clients, "ec2", "DescribeSubnets", {"Subnets": subnets})
        [found] = results_of(http, given, clients)
        return found.status, found.finding

    assert finding("a", "b")[0] == "ok"
    assert finding("a", "a") == (
        "failure",
        "its subnets are in us-west-2a, us-west-2a: a load balancer has one for each zone",
    )
    assert finding("a") == ("failure", "subnet-0000000b does not exist")
    assert "fewer than 8 free addresses" in finding("a", "b", free=7)[1]


def test_proxies_count_for_types_and_quotas(clients: AwsClients) -> None:
    pools = [
        {"InstanceType": name, "Location": place}
        for name in ("g6.xlarge", "g5.2xlarge", "c7g.large")
        for place in ("us-west-2a", "us-west-2b")
    ]
    reply = {"InstanceTypeOfferings": pools[:-1]}
    stub_operation(clients, "ec2", "DescribeInstanceTypeOfferings", reply)
    found = results_of(offerings, of(), clients)[-1]
    assert (found.subject, found.status) == ("web: proxies", "warning")
    assert found.key == "services[0].http.proxies.instanceType"
    stub_operation(clients, "ec2", "DescribeInstanceTypeOfferings", {"InstanceTypeOfferings": pools[:-2]})
    assert results_of(offerings, of(), clients)[-1].status == "failure"

    def quota(request: Any) -> dict[str, Any]:
        standard = request["QuotaCode"] == "L-1216C47A"
        return {"Quota": {"QuotaName": request["QuotaCode"], "Value": 3.0 if standard else 9999.0}}

    stub_operation(clients, "service-quotas", "GetServiceQuota", quota)
    # Two of two vCPUs.
    assert statuses(results_of(quotas, of(), clients))["L-1216C47A"] == "failure"
    assert "L-1216C47A" not in statuses(results_of(quotas, stack(), clients))


def test_addresses_of_pods_are_checked_too(clients: AwsClients) -> None:
    pods = on_kubernetes(http={"port": 8000, "certificateArn": CERTIFICATE})
    stub_operation(clients, "acm", "DescribeCertificate", certificate("PENDING_VALIDATION"))
    [found] = results_of(http, pods, clients)
    assert (found.status, found.key) == ("failure", "services[0].http.certificateArn")
    reply = {"InstanceTypeOfferings": [{"InstanceType": "g6.xlarge", "Location": "us-west-2a"}]}
    stub_operation(clients, "ec2", "DescribeInstanceTypeOfferings", reply)
    found = results_of(offerings, pods, clients)[-1]
    assert (found.subject, found.status) == ("web: proxies", "failure")
    assert pods.proxies == {"c7g.large": 2}


def test_load_balancers_are_counted_and_cost(clients: AwsClients) -> None:
    template = Declared(
        "aws:ec2/launchTemplate:LaunchTemplate",
        "p",
        {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": 10}}]},
    )
    tags = [{"key": "gpu-spot:proxy", "value": "web"}]
    declared = (
        Declared("aws:lb/loadBalancer:LoadBalancer", "b", {"internal": False, "subnets": ["a", "b"]}),
        template,
        Declared("aws:autoscaling/group:Group", "p", {"desiredCapacity": 2, "tags": tags}),
    )
    found = {one.subject: one.finding for one in results_of(monthly_cost, of(declared), clients)}
    assert found["load balancers"] == "1 × $16.43 = $16.43"
    assert found["proxies c7g.large"] == "2 × $52.92 = $105.85"
    assert found["GiB of proxies"].startswith("20 × ")
    assert found["public IPv4 addresses"].startswith("2 × ")
    stub_operation(
        clients, "service-quotas", "GetServiceQuota", {"Quota": {"QuotaName": "balancers", "Value": 0.0}}
    )
    [result] = results_of(limits, of(declared), clients)
    assert (result.subject, result.status) == ("balancers", "failure")
