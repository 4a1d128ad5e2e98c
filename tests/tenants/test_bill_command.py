"""``gpu-spot tenants bill`` on CloudWatch by moto, with the metrics that host and controller send."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
import yaml

from contracts import names
from gpu_spot.commands.deployed.tenants import act
from gpu_spot.tenants.reader import BillError, UsageReader, period_of
from infra.settings import load_settings
from tests import models
from tests.infra.declared import ROOT
from tests.tenants.hosts import tenant
from userdata.agent.metrics.emf import Metric
from userdata.agent.tenants.host import meter
from userdata.agent.tenants.host.steps import DesiredTenant, TenantContainer
from userdata.agent.tenants.model import HostShape, NumaNode, Slice
from userdata.agent.tenants.throughput import ASSUMED, bounds_of

NOW = datetime(2026, 11, 26, 16, 20, tzinfo=UTC)
START = datetime(2026, 11, 3, 10, tzinfo=UTC)
SHAPE = HostShape((NumaNode(tuple((cpu,) for cpu in range(8)), (0, 1)),), 64, (0, 1))
VISION = tenant("vision", uid=2001, cpus=4, memory_gib=32, gpus=1)
SPEECH = tenant("speech", uid=2002, cpus=4, memory_gib=16)
PRICE = 3.6


@pytest.fixture
def cloudwatch() -> Iterator[Any]:
    with models.moto():
        yield boto3.client("cloudwatch", "us-west-2")


Data = list[tuple[str, dict[str, Any]]]
"""Metric data by namespace."""


def datum(namespace: str, name: str, at: datetime, value: float, **dimensions: str) -> Data:
    described = [{"Name": key, "Value": text} for key, text in {"stack": "shared", **dimensions}.items()]
    return [(namespace, {"MetricName": name, "Dimensions": described, "Timestamp": at, "Value": value})]


def put(cloudwatch: Any, data: Data) -> None:
    for namespace in {one for one, _ in data}:
        of_it = [values for one, values in data if one == namespace]
        for at in range(0, len(of_it), 1000):
            cloudwatch.put_metric_data(Namespace=namespace, MetricData=of_it[at : at + 1000])


def part(gpus: int) -> Slice:
    return Slice((0,), 40, 1, gpus=tuple(range(gpus)))


def live(cloudwatch: Any, minutes: int, priced_minutes: int) -> None:
    """Let a host run from ``START``: its own meter sends, and the controller where it knows the price."""
    running = {
        one.name: TenantContainer(one.name, one.name, "", None, True, 1, "", -1, one.uid, "", "", None)
        for one in (VISION, SPEECH)
    }
    desired = {
        one.name: DesiredTenant(one, part(one.gpus), "", 1, -1, (), bounds_of(one.cpus, 8, ASSUMED))
        for one in (VISION, SPEECH)
    }
    spent = {VISION.uid: 0.0, SPEECH.uid: 0.0}
    clock = [0.0]
    data: Data = []

    def send(name: str, metrics: list[Metric]) -> None:
        more = {} if name == meter.HOST else {names.TENANT: name}
        at = START + timedelta(seconds=clock[0] - 1)
        for metric in metrics:
            data.extend(
                datum(names.INSTANCE_NAMESPACE, metric.name, at, metric.values[0], group="lab", **more)
            )

    metered = meter.UsageMeter(send, lambda: None, lambda pid: meter.Counters(spent[pid], 2**30))
    for minute in range(minutes + 1):
        clock[0] = 60.0 * minute
        metered.tick(clock[0], desired, running, {}, (), SHAPE)
        spent[VISION.uid] += 60.0 * 6  # four are its own: two are borrowed
        if minute < priced_minutes:
            at, of = (
                START + timedelta(seconds=clock[0]),
                {"group": "lab", "service": names.SERVICE_CONTROLLER},
            )
            data.extend(datum(names.METRIC_NAMESPACE, names.METRIC_HOURLY_COST, at, PRICE, **of))
    put(cloudwatch, data)


def bill(cloudwatch: Any, capsys: Any, month: str = "2026-11", **more: Any) -> list[dict[str, str]]:
    raw = yaml.safe_load((ROOT / "Pulumi.shared.yaml").read_text("utf-8"))["config"]
    args = argparse.Namespace(**{"stack": "shared", "month": month, "host": None, "tenant": [], **more})
    assert act(args, lambda service: cloudwatch, load_settings(raw), NOW) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_the_bill_of_what_the_hosts_meter_sent(cloudwatch: Any, capsys: Any) -> None:
    live(cloudwatch, 60, 60)
    lines = {row["tenant"] or row["line"]: row for row in bill(cloudwatch, capsys)}
    assert list(lines) == ["speech", "vision", "idle", "host"]
    vision = lines["vision"]
    assert vision["gpu_seconds"] == "3600"
    assert (vision["cpu_seconds_reserved"], vision["cpu_seconds_borrowed"]) == ("14400", "7200")
    assert lines["speech"]["cpu_seconds_lent"] == "7200"
    assert (vision["memory_gib_hours"], lines["host"]["memory_gib_hours"]) == ("32.00", "64.00")
    assert float(lines["host"]["usd"]) == pytest.approx(PRICE)
    assert {row["hours_price_unknown"] for row in lines.values()} == {"0.00"}
    # Half of the GPUs, six of eight CPUs, half of the memory.
    weights = (0.95 + 6 * 0.031611 + 32 * 0.004237) / (2 * 0.95 + 8 * 0.031611 + 64 * 0.004237)
    assert float(vision["usd"]) == pytest.approx(PRICE * weights, abs=1e-3)


def test_minutes_without_a_price_are_counted_and_cost_nothing(cloudwatch: Any, capsys: Any) -> None:
    live(cloudwatch, 60, 30)
    lines = {row["tenant"] or row["line"]: row for row in bill(cloudwatch, capsys)}
    assert lines["host"]["hours_price_unknown"] == lines["vision"]["hours_price_unknown"] == "0.50"
    assert float(lines["host"]["usd"]) == pytest.approx(0.5 * PRICE)


def test_a_removed_tenant_is_on_the_bill(cloudwatch: Any, capsys: Any) -> None:
    of = {"group": "lab", names.TENANT: "removed"}
    put(
        cloudwatch,
        datum(names.INSTANCE_NAMESPACE, names.METRIC_TENANT_CPU_RESERVED, START, 60.0, **of),
    )
    assert [row["tenant"] for row in bill(cloudwatch, capsys) if row["line"] == "tenant"] == ["removed"]


def test_an_incomplete_answer_is_no_bill() -> None:
    class Partly:
        def get_paginator(self, name: str) -> Partly:
            return self

        def paginate(self, **request: Any) -> list[dict[str, Any]]:
            ids = [query["Id"] for query in request["MetricDataQueries"]]
            empty = {"Timestamps": [], "Values": [], "StatusCode": "Complete"}
            return [{"MetricDataResults": [{**empty, "Id": one} for one in ids[:-1]]}]

    with pytest.raises(BillError, match="CloudWatch returned too few"):
        UsageReader(Partly(), "shared").hours("lab", ["vision"], period_of("2026-10", NOW))


@pytest.mark.parametrize("month", ["2026-13", "26-11", "2026-12", "2025-08", "2026-11-01"])
def test_an_impossible_month_is_refused_with_those_that_are_possible(month: str) -> None:
    with pytest.raises(BillError, match=f"--month is '{month}', allowed: "):
        period_of(month, NOW)


def test_a_month_in_progress_ends_with_the_last_full_hour() -> None:
    assert period_of("2026-11", NOW).end == datetime(2026, 11, 26, 16, tzinfo=UTC)
    assert period_of("2026-02", NOW).end == datetime(2026, 3, 1, tzinfo=UTC)
    assert period_of("2025-09", NOW).start == datetime(2025, 9, 1, tzinfo=UTC)
