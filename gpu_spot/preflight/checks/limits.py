"""Network quotas of the account, compared with existing resources and those that the stack adds.

Source: VPC user guide, "Amazon VPC quotas": 5 VPCs, 5 internet gateways, 5 Elastic IP addresses, 20 gateway
endpoints per region by default; Application Load Balancer guide, "Quotas": 50 load balancers per region.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from contracts import names
from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.service_quotas import quota
from gpu_spot.preflight.stack import Stack

NAME: Final = "network quotas"


@dataclass(frozen=True, slots=True)
class _Counted:
    """A quota: the Pulumi resource type that it counts, and the client, operation and key that list it."""

    service: str
    code: str
    type: str
    operation: str
    key: str
    inputs: Mapping[str, str] | None = None
    client: str = "ec2"


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
    _Counted(
        "elasticloadbalancing",
        "L-53DA6B97",
        "aws:lb/loadBalancer:LoadBalancer",
        "describe_load_balancers",
        "LoadBalancers",
        client="elbv2",
    ),
)


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Compare existing and declared resources with each quota."""
    for counted in _COUNTED:
        chosen = (counted.inputs or {}).items()
        declared = sum(chosen <= inputs.items() for inputs in stack.of_type(counted.type))
        if declared:
            yield _compare(stack, account, counted, declared)


def _compare(stack: Stack, account: Account, counted: _Counted, declared: int) -> CheckResult:
    clients = {"ec2": account.clients("ec2"), "elbv2": account.clients("elbv2")}
    existing = getattr(clients[counted.client], counted.operation)()[counted.key]
    if counted.inputs:
        existing = [endpoint for endpoint in existing if endpoint["VpcEndpointType"] == "Gateway"]
    owned = sum(_is_own(resource, stack.name) for resource in existing)
    more, resource_quota = max(0, declared - owned), quota(account, counted.service, counted.code)
    finding = f"{resource_quota.value:.0f}, {len(existing)} in use; this stack adds {more}"
    return resource_quota.check(finding, len(existing) + more, len(existing) + more)


def _is_own(resource: Mapping[str, Any], stack: str) -> bool:
    return {"Key": names.TAG_STACK, "Value": stack} in resource.get("Tags", [])
