"""Quotas of the network: what the account has, and what the stack adds to it.

Source: VPC user guide, "Amazon VPC quotas": 5 VPCs, 5 internet gateways, 5 Elastic IP addresses, 20 gateway
endpoints a region unless raised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from contracts import names
from gpu_spot.preflight.account import Account
from gpu_spot.preflight.remark import Remark
from gpu_spot.preflight.service_quotas import quota
from gpu_spot.preflight.stack import Stack

NAME: Final = "quotas of the network"


@dataclass(frozen=True, slots=True)
class _Counted:
    """What a quota counts: a resource type of Pulumi's, and EC2's operation and key that list it."""

    service: str
    code: str
    type: str
    operation: str
    key: str
    inputs: Mapping[str, str] | None = None


_COUNTED: Final = (
    _Counted("vpc", "L-F678F1CE", "aws:ec2/vpc:Vpc", "describe_vpcs", "Vpcs"),
    _Counted(
        "vpc",
        "L-A4707A72",
        "aws:ec2/internetGateway:InternetGateway",
        "describe_internet_gateways",
        "InternetGateways",
    ),
    _Counted("ec2", "L-0263D0A3", "aws:ec2/eip:Eip", "describe_addresses", "Addresses"),
    _Counted(
        "vpc",
        "L-1B52E74A",
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        "describe_vpc_endpoints",
        "VpcEndpoints",
        {"vpcEndpointType": "Gateway"},
    ),
)


def look(stack: Stack, account: Account) -> Iterator[Remark]:
    """Count what is there, and what comes."""
    for counted in _COUNTED:
        chosen = (counted.inputs or {}).items()
        declared = sum(chosen <= inputs.items() for inputs in stack.of_type(counted.type))
        if declared:
            yield _judged(stack, account, counted, declared)


def _judged(stack: Stack, account: Account, counted: _Counted, declared: int) -> Remark:
    there = getattr(account.clients("ec2"), counted.operation)()[counted.key]
    if counted.inputs:
        there = [one for one in there if one["VpcEndpointType"] == "Gateway"]
    own = sum(_is_own(one, stack.name) for one in there)
    more, found = max(0, declared - own), quota(account, counted.service, counted.code)
    told = f"{found.value:.0f}, {len(there)} in use; this stack adds {more}"
    return found.remark(told, len(there) + more, len(there) + more)


def _is_own(resource: Mapping[str, Any], stack: str) -> bool:
    return {"Key": names.TAG_STACK, "Value": stack} in resource.get("Tags", [])
