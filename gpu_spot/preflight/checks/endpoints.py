"""Which zones have the services that the stack puts into them.

Source: ``DescribeVpcEndpointServices``: a service names the zones where its endpoint can have an address.
EFS has no such question: ``CreateMountTarget`` answers ``UnsupportedAvailabilityZone`` where it is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.remark import Remark
from gpu_spot.preflight.stack import Stack

NAME: Final = "services in the zones"


def look(stack: Stack, account: Account) -> Iterator[Remark]:
    """Look at every endpoint that the stack declares, and say what cannot be looked up."""
    declared = {
        one["serviceName"]: one.get("vpcEndpointType") == "Interface"
        for one in stack.of_type("aws:ec2/vpcEndpoint:VpcEndpoint")
    }
    if declared:
        yield from _endpoints(declared, stack.zones, account)
    if stack.has("aws:efs/mountTarget:MountTarget"):
        yield Remark(
            "EFS",
            "not known",
            "AWS does not tell in which zones a mount target can be",
            "if `up` says UnsupportedAvailabilityZone, take that zone out of network.zones",
        )


def _endpoints(declared: dict[str, bool], zones: tuple[str, ...], account: Account) -> Iterator[Remark]:
    # A filter, because the parameter ServiceNames refuses the whole list for one unknown name.
    pages = (
        account.clients("ec2")
        .get_paginator("describe_vpc_endpoint_services")
        .paginate(Filters=[{"Name": "service-name", "Values": sorted(declared)}])
    )
    there = {one["ServiceName"]: one["AvailabilityZones"] for page in pages for one in page["ServiceDetails"]}
    for name, is_interface in declared.items():
        lacking = [zone for zone in zones if is_interface and zone not in there.get(name, ())]
        if name not in there:
            yield Remark(
                name, "failure", "no such endpoint in this region", "choose another way out in `network`"
            )
        elif lacking:
            found = f"has no endpoint in {', '.join(lacking)}"
            yield Remark(name, "failure", found, "take these out of network.zones")
    if declared.keys() <= there.keys():
        yield Remark("endpoints", "ok", f"{len(declared)} services looked up")
