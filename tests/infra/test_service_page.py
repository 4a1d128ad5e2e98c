"""docs/services.md, docs/http.md: the entries that readers copy are such as a stack file may have."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from contracts.agent.config import Config, Metrics
from gpu_spot.preflight.checks import quotas
from infra.components.control import controller
from infra.components.monitoring import telemetry
from infra.components.network.network import plan
from infra.schema import Capacity
from infra.schema.jobs.training import Training
from infra.schema.network import Network
from lambdas.core.capacity import policies
from tests.infra.declared import ROOT
from tests.infra.test_refusals import REMOVED, settings
from tests.measured.checker import measure


def test_the_whole_entry_passes_the_schema() -> None:
    page = (ROOT / "docs" / "services.md").read_text("utf-8")
    block = re.search(r"## A whole entry\n.*?```yaml\n(.*?)```", page, re.DOTALL)
    assert block is not None
    [service] = settings("dev", {**yaml.safe_load(block[1]), "gpu-spot:training": REMOVED}).services
    assert service.queue is not None
    assert service.scaling is not None
    assert service.workers_per_slot == 2


def test_the_entry_with_an_address_passes_the_schema() -> None:
    page = (ROOT / "docs" / "http.md").read_text("utf-8")
    block = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert block is not None
    of = settings("dev", {**yaml.safe_load(block[1]), "gpu-spot:training": REMOVED})
    [service] = of.services
    assert service.http is not None
    assert service.http.domain == "chat.example.com"
    assert not [line for line in of.warnings() if "drainSeconds" in line]


PAGE = (Path(__file__).parents[2] / "research" / "scale.md").read_text(encoding="utf-8")
RESERVED_BY_AWS = 5
"""Addresses of each subnet (VPC guide, "Subnet CIDR blocks")."""

SIZES = (10, 100, 1_000, 10_000)
GP3_TIB = 50
"""Of a region by default (source 16 of the page)."""
UNFINISHED = 100
"""Snapshots of an account (source 16)."""


def row(begin: str) -> list[str]:
    """Return the cells of the table's row that begins so."""
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| {begin}"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_addresses_are_those_of_the_declared_subnets() -> None:
    rooms = {bits: f"{addresses(bits):,}" for bits in (16, 18, 20)}
    first = f"A `network.cidr` of `/16` has room for {rooms[16]} instances in three zones"
    assert f"{first}, `/18` for {rooms[18]}, `/20` for {rooms[20]}." in PAGE


def addresses(bits: int) -> int:
    blocks = plan(f"10.0.0.0/{bits}", ("us-west-2a", "us-west-2b", "us-west-2c"))
    return sum(ipaddress.ip_network(one.private).num_addresses - RESERVED_BY_AWS for one in blocks.values())


@pytest.mark.soak
def test_calls_of_a_pass_are_those_of_the_controller() -> None:
    found = [measure("mixed-asg", size, policies.DEFAULT) for size in SIZES]
    assert row("AWS calls")[:4] == [str(one["calls_total"]) for one in found]
    pages = [str(one["calls"]["describe_instances"]) for one in found]
    assert row("of them `DescribeInstances`")[:4] == pages
    assert 0.9 * 303_000 < found[-1]["memory_bytes"] < 1.1 * 303_000


def test_heartbeats_come_as_often_as_the_page_reckons() -> None:
    writes = 8 * SIZES[-1] / Config.heartbeat_seconds
    assert f"Eight workers on each of {SIZES[-1]:,} instances write {writes:,.0f} items a second" in PAGE


def default(model: type[BaseModel], field: str) -> int:
    """Return what a stack file need not say."""
    return int(model.model_fields[field].default)


def cells(each: float) -> list[str]:
    """Return what so much for each instance is at the sizes of the page."""
    found = (each * size for size in SIZES)
    return [f"{one:,.0f}" if one >= 10 else f"{one:.1f}".removesuffix(".0") for one in found]


@pytest.mark.parametrize(
    ("begin", "each"),
    [
        ("heartbeats a second", 1 / Config.heartbeat_seconds),
        ("`PutLogEvents` a second", 1 / Metrics.send_every_seconds),
        ("TiB of root volumes", default(Capacity, "root_volume_gib") / 1024),
        ("snapshots a minute", 1 / default(Training, "snapshot_every_minutes")),
    ],
)
def test_what_instances_ask_of_aws_is_what_is_configured(begin: str, each: float) -> None:
    assert row(begin)[: len(SIZES)] == cells(each)


def test_a_burst_of_warnings_takes_as_many_runs_as_the_page_reckons() -> None:
    runs = [f"{-(-size // controller.BATCH_SIZE)}" for size in SIZES]
    assert row("runs of the controller") == [*runs, f"{controller.MAX_CONCURRENCY} at a time, ours"]


def test_a_region_of_default_quotas_holds_as_many_instances_as_the_page_says() -> None:
    root, home = default(Capacity, "root_volume_gib"), default(Training, "volume_gib")
    alone, together = GP3_TIB * 1024 // root, GP3_TIB * 1024 // (root + home)
    assert f"{GP3_TIB} TiB of gp3 volumes: {alone} instances" in PAGE
    assert f"Roots of {root} GiB: {alone} instances; and a job's volume of {home} GiB: {together}." in PAGE


def test_unfinished_snapshots_stay_below_the_quota_as_the_page_reckons() -> None:
    every = default(Training, "snapshot_every_minutes")
    assert f"A job takes one every {every} minutes" in PAGE
    minutes, seconds = UNFINISHED * every / 1_000, UNFINISHED * every * 60 / 10_000
    assert f"done within {minutes:g} minutes, 10,000 within {seconds:g} s" in PAGE


def test_an_instance_has_as_many_streams_as_the_page_says() -> None:
    streams = 1 + len(telemetry.configuration("logs")["logs"]["logs_collected"]["files"]["collect_list"])
    assert streams == 3
    assert "an instance has three" in PAGE


def test_a_fleet_takes_what_a_stack_file_may_ask_for() -> None:
    types, zones = most(Capacity, "instance_types"), most(Network, "zones")
    assert types * zones <= 300
    assert most(Capacity, "max") <= 10_000
    assert f"{types} types in six zones" in PAGE
    assert f"are {types * zones} pools" in PAGE


def most(model: type[BaseModel], field: str) -> int:
    """Return the upper bound of a field, or of its length."""
    schema = model.model_json_schema(by_alias=False)["properties"][field]
    kinds = schema.get("anyOf", [schema])
    return int(next(kind[key] for kind in kinds for key in ("maxItems", "maximum") if key in kind))


def test_groups_are_to_be_divided_where_preflight_says_so() -> None:
    assert f"divide it at {quotas.MAX_SLOTS:,}" in PAGE
    assert f"groups of at most {quotas.MAX_SLOTS:,}" in PAGE
