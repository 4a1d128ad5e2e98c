"""Invalid settings of ``network``: each is an error that names its key."""

from __future__ import annotations

from typing import Any

import pytest

from infra.settings import SettingsError
from tests.infra.test_refusals import REMOVED, network, settings

SUBNETS = {"us-west-2a": "subnet-00000000"}


def existing(**values: Any) -> dict[str, Any]:
    """Put the stack into an existing VPC, in the first of its zones."""
    removed = network(cidr=REMOVED, zones=REMOVED, egress=REMOVED)
    return removed | network(vpcId="vpc-00000000", subnets=SUBNETS) | network(**values)


# (stack, changes, key that the message names, part of the message)
CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("dev", network(zones=["us-west-2a"] * 2), "network.zones", "listed twice"),
    ("dev", network(zones=["us-east-1a"]), "network.zones", "not a zone of us-west-2"),
    ("dev", network(zones=["us-west-2-lax-1a"]), "network.zones", "not a zone of us-west-2"),
    ("dev", network(zones=[]), "network.zones", "at least 1"),
    ("dev", network(zones=[f"us-west-2{letter}" for letter in "abcdefg"]), "network.zones", "at most 6"),
    ("dev", network(cidr="10.0.0.0/24"), "network.cidr", "/16 to /20"),
    ("dev", network(cidr="10.0.1.0/16"), "network.cidr", "host bits"),
    ("dev", network(cidr="8.8.0.0/16"), "network.cidr", "not a private network"),
    ("dev", network(cidr="169.254.0.0/16"), "network.cidr", "not a private network"),
    ("dev", network(cidr="172.17.0.0/16"), "network.cidr", "Docker's bridge"),
    ("dev", network(nonOverlappingCidrs=["10.0.0.0/8"]), "network.cidr", "overlaps 10.0.0.0/8"),
    ("dev", network(nonOverlappingCidrs=["10.20.128.0/17"]), "network.cidr", "overlaps 10.20.128.0/17"),
    ("dev", network(nonOverlappingCidrs=["ten"]), "network.nonOverlappingCidrs", "not an IPv4 CIDR block"),
    ("prod", network(endpoints="gateway"), "network.endpoints", "(workers need AWS's APIs)"),
    ("dev", network(endpoints="none"), "network.endpoints", "'none' without vpcId"),
    ("dev", network(extraEndpoints=["sts"]), "network.extraEndpoints", "without endpoints 'interface'"),
    (
        "dev",
        network(cidr=REMOVED),
        "network.cidr",
        "missing, allowed: a block such as 10.20.0.0/16, or vpcId",
    ),
    ("dev", network(subnets=SUBNETS), "network.subnets", "without vpcId"),
    ("dev", network(securityGroups=["sg-00000000"]), "network.securityGroups", "without vpcId"),
    ("dev", existing(cidr="10.20.0.0/16"), "network.cidr", "in an existing VPC"),
    ("dev", existing(subnets=REMOVED), "network.subnets", "missing, allowed: one private subnet"),
    ("dev", existing(subnets={"us-west-2a": "10.0.0.0/24"}), "network.subnets.us-west-2a", "subnet-"),
    ("dev", existing(subnets={"us-east-1a": "subnet-00000000"}), "network.zones", "not a zone of us-west-2"),
    (
        "dev",
        existing(subnets=dict.fromkeys(("us-west-2a", "us-west-2b"), "subnet-00000000")),
        "network.subnets",
        "each subnet once",
    ),
    (
        "dev",
        existing(zones=["us-west-2a", "us-west-2b"]),
        "network.zones",
        "the zones of subnets: us-west-2a",
    ),
    ("dev", existing(egress="nat-gateway"), "network.egress", "in an existing VPC"),
    ("dev", existing(flowLogs="all"), "network.flowLogs", "in an existing VPC"),
    (
        "dev",
        existing(nonOverlappingCidrs=["10.0.0.0/8"]),
        "network.nonOverlappingCidrs",
        "in an existing VPC",
    ),
    ("dev", existing(endpoints="gateway"), "network.endpoints", "in an existing VPC"),
    ("dev", network(flowLogs="accepted"), "network.flowLogs", "'rejected'"),
]


@pytest.mark.parametrize(("stack", "changes", "key", "message"), CASES)
def test_an_invalid_network_is_an_error_that_names_its_key(
    stack: str, changes: dict[str, Any], key: str, message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        settings(stack, changes)
    [line] = str(caught.value).splitlines()
    assert line.startswith(f"gpu-spot:{key}: ")
    assert message in line
    assert "allowed" in line or "missing" in line
