"""Availability of AWS services in the stack's zones.

Source: ``DescribeVpcEndpointServices`` lists the zones of a service's endpoints. EFS has no such call:
``CreateMountTarget`` returns ``UnsupportedAvailabilityZone``.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.stack import Stack


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Check every declared endpoint; report what cannot be checked."""
    declared = {
        inputs["serviceName"]: inputs.get("vpcEndpointType") == "Interface"
        for inputs in stack.of_type("aws:ec2/vpcEndpoint:VpcEndpoint")
    }
    if declared:
        yield from _endpoints(declared, stack.zones, account)
    if stack.has("aws:efs/mountTarget:MountTarget"):
        finding = "AWS does not list the zones that support mount targets"
        advice = "if `up` fails with UnsupportedAvailabilityZone, remove that zone"
        yield CheckResult("EFS", "not known", finding, advice, "network.zones")


def _endpoints(declared: dict[str, bool], zones: tuple[str, ...], account: Account) -> Iterator[CheckResult]:
    # The parameter ServiceNames rejects the whole list if one name is unknown; a filter does not.
    pages = (
        account.clients("ec2")
        .get_paginator("describe_vpc_endpoint_services")
        .paginate(Filters=[{"Name": "service-name", "Values": sorted(declared)}])
    )
    zones_by_service = {
        service["ServiceName"]: service["AvailabilityZones"]
        for page in pages
        for service in page["ServiceDetails"]
    }
    for name, is_interface in declared.items():
        service_zones = zones_by_service.get(name, ())
        missing_zones = [zone for zone in zones if is_interface and zone not in service_zones]
        if name not in zones_by_service:
            finding = "endpoint not available in this region"
            yield CheckResult(name, "failure", finding, "choose another `network` egress", "network.egress")
        elif missing_zones:
            finding = f"no endpoint in {', '.join(missing_zones)}"
            yield CheckResult(name, "failure", finding, "remove these zones", "network.zones")
    if declared.keys() <= zones_by_service.keys():
        yield CheckResult("endpoints", "ok", f"{len(declared)} services checked")
