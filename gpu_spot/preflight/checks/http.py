"""Addresses of HTTP services: certificates, hosted zones, and subnets of load balancers.

Source: Certificate Manager API reference, ``CertificateDetail``; Route 53 API reference, ``GetHostedZone``;
Application Load Balancer guide, "Availability Zones and subnets".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.stack import Stack
from infra.schema.services.http import Http

NAME: Final = "addresses"
_FREE_ADDRESSES: Final = 8
"""Free addresses that each subnet of a load balancer must have."""


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Check what each address needs."""
    for service in stack.services:
        http = service.http
        if http is None:
            continue
        for key, result in _checks(f"address of {service.name}", http, account):
            yield replace(result, key=stack.key(service.name, f"http.{key}"))


def _checks(subject: str, http: Http, account: Account) -> Iterator[tuple[str, CheckResult]]:
    if http.certificate_arn is not None:
        result = _certificate(subject, http.certificate_arn, http.domain, account.clients("acm"))
        yield "certificateArn", result
    if http.hosted_zone_id is not None and http.domain is not None:
        result = _zone(subject, http.hosted_zone_id, http.domain, account.clients("route53"))
        yield "hostedZoneId", result
    if http.subnets:
        yield "subnets", _subnets(subject, http, account.clients("ec2"))


def _certificate(subject: str, arn: str, domain: str | None, client: Any) -> CheckResult:
    try:
        certificate = client.describe_certificate(CertificateArn=arn)["Certificate"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        return CheckResult(subject, "failure", f"certificate {arn} does not exist", "request one")
    if certificate["Status"] != "ISSUED":
        finding = f"the certificate has the status {certificate['Status']}: no listener accepts it"
        return CheckResult(subject, "failure", finding, "validate it, or choose another")
    names = [certificate["DomainName"], *certificate.get("SubjectAlternativeNames", ())]
    if domain is not None and not any(_covers(name, domain) for name in names):
        finding = f"the certificate is for {', '.join(dict.fromkeys(names))}, not for {domain}"
        return CheckResult(subject, "failure", finding, "callers would reject it: choose another")
    if domain is None:
        finding = f"callers must use a name of the certificate: {', '.join(dict.fromkeys(names))}"
        return CheckResult(subject, "warning", finding, "set http.domain")
    return CheckResult(subject, "ok", f"the certificate is issued for {domain}")


def _covers(name: str, domain: str) -> bool:
    """Return whether a certificate's name is that of a domain; an asterisk is for one label."""
    if name.startswith("*."):
        return domain.partition(".")[2] == name.removeprefix("*.")
    return name == domain


def _zone(subject: str, zone_id: str, domain: str, client: Any) -> CheckResult:
    try:
        zone = client.get_hosted_zone(Id=zone_id)["HostedZone"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchHostedZone":
            raise
        return CheckResult(subject, "failure", f"hosted zone {zone_id} does not exist", "create it")
    name = zone["Name"].removesuffix(".")
    if domain != name and not domain.endswith(f".{name}"):
        finding = f"hosted zone {zone_id} is for {name}, which {domain} is not in"
        return CheckResult(subject, "failure", finding, "choose another zone")
    return CheckResult(subject, "ok", f"{domain} is declared in hosted zone {name}")


def _subnets(subject: str, http: Http, client: Any) -> CheckResult:
    filters = [{"Name": "subnet-id", "Values": [*http.subnets]}]
    subnets: Sequence[Mapping[str, Any]] = client.describe_subnets(Filters=filters)["Subnets"]
    if missing := sorted({*http.subnets} - {subnet["SubnetId"] for subnet in subnets}):
        return CheckResult(subject, "failure", f"{', '.join(missing)} does not exist", "list other subnets")
    zones = [str(subnet["AvailabilityZone"]) for subnet in subnets]
    if len({*zones}) < len(zones):
        finding = f"its subnets are in {', '.join(sorted(zones))}: a load balancer has one for each zone"
        return CheckResult(subject, "failure", finding, "list one subnet of each zone")
    if small := [s["SubnetId"] for s in subnets if int(s["AvailableIpAddressCount"]) < _FREE_ADDRESSES]:
        finding = f"{', '.join(small)} has fewer than {_FREE_ADDRESSES} free addresses"
        return CheckResult(subject, "failure", finding, "list other subnets")
    return CheckResult(subject, "ok", f"{len(subnets)} subnets in {', '.join(sorted(zones))}")
