"""The numbers of docs/scale.md that are ours are what the code does."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

import pytest

from bench.checker import measure
from infra.components.network.network import plan
from lambdas.core import policies
from userdata.agent.config.model import Config

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
KEPT_BY_AWS = 5
"""Addresses of each subnet (VPC guide, "Subnet CIDR blocks")."""


def row(begin: str) -> list[str]:
    """Return the cells of the table's row that begins so."""
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| {begin}"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


@pytest.mark.parametrize("bits", [int(found) for found in re.findall(r"^\| `/(\d+)` \|", PAGE, re.MULTILINE)])
def test_addresses_are_those_of_the_declared_subnets(bits: int) -> None:
    blocks = plan(f"10.0.0.0/{bits}", ("us-west-2a", "us-west-2b", "us-west-2c"))
    each = [ipaddress.ip_network(block.private).num_addresses - KEPT_BY_AWS for block in blocks.values()]
    assert row(f"`/{bits}`") == [f"{each[0]:,}", f"{sum(each):,}"]


def test_calls_of_a_look_are_those_that_the_controller_makes() -> None:
    found = [measure("mixed-asg", size, policies.DEFAULT) for size in (10, 100, 1_000, 10_000)]
    assert row("AWS calls")[:4] == [str(one["calls_total"]) for one in found]
    pages = [str(one["calls"]["describe_instances"]) for one in found]
    assert row("of them `DescribeInstances`")[:4] == pages
    assert 0.9 * 303_000 < found[-1]["memory_bytes"] < 1.1 * 303_000


def test_heartbeats_come_as_often_as_the_page_reckons() -> None:
    assert f"a heartbeat every {Config.heartbeat_seconds:g} s, as is the default" in PAGE
