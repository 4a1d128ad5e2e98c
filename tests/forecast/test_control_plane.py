"""The control plane's bill: what is emitted and called, priced; the forecast says the same within 10 %."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from contracts import names
from contracts.agent.config import Config
from gpu_spot.declared.stackfile import StackConfig
from gpu_spot.forecast import control_plane, fixed_costs
from gpu_spot.preflight.prices import Line
from gpu_spot.preflight.stack import declare
from infra.settings import load_settings
from tests.apart import apart
from tests.forecast import emitted
from tests.forecast.conftest import service, stack_file
from tests.node import configs
from tests.node.fake_nvml import FakeGpu, FakeNvml

REPOSITORY = Path(__file__).parents[2]
MINUTES = 730 * 60
WITHIN = 0.1
CONTROL_PLANE = {
    *("alarms", "dashboards", "function requests", "function GiB-seconds"),
    *("custom metrics", "custom metrics beyond 10,000", "GB of logs", "heartbeats, million"),
    *("items written, million", "items read, million", "queue requests, million"),
}


def declared_lines(values: dict[str, Any]) -> list[Line]:
    config = StackConfig("gpu-spot", "x", REPOSITORY / "infra", values)
    few, times = fixed_costs.reduce_entries(config)
    stack = fixed_costs.multiply(declare(few), times, load_settings(values))
    return list(fixed_costs.lines(stack, 0.0))


def costs(values: dict[str, Any]) -> dict[str, float]:
    """Return the forecast's lines of the control plane, in dollars a month."""
    lines: list[Line] = apart(declared_lines, values)
    return {line.item: line.cost for line in lines if line.item in CONTROL_PLANE}


def agent(tmp_path: Path, gpus: int) -> emitted.Emitted:
    """Return what a minute of an instance with a busy worker on each GPU brings."""
    (tmp_path / "workers").mkdir()
    pids = [os.getpid(), *range(2**22 + 1, 2**22 + gpus)]
    for n, pid in enumerate(pids):
        text = f'{{"slot": {n}, "gpu": {n}, "pid": {pid}}}'
        (tmp_path / "workers" / f"{n}.json").write_text(text)
    uuid, samples = "GPU-8f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f", range(9)
    devices = [
        FakeGpu(f"{uuid}{n}", {pid: 9000 * 2**20}, [(pid, at, 90) for at in samples])
        for n, pid in enumerate(pids)
    ]
    config = configs.load(configs.training())
    return emitted.instance(config, configs.FakeClock(), tmp_path, devices, FakeNvml(devices))


TENANT_VALUES = {
    names.METRIC_TENANT_CPU_SECONDS: 712.25,
    names.METRIC_TENANT_CPU_BORROWED: 12.5,
    names.METRIC_TENANT_CPU_LENT: 0.0,
    names.METRIC_TENANT_MEMORY: 31_250.5,
    names.METRIC_TENANT_CPU_RESERVED: 720.2,
    names.METRIC_TENANT_GPU_RESERVED: 60.01,
    names.METRIC_TENANT_MEMORY_RESERVED: 1.3333,
    names.METRIC_TENANT_RESTARTS: 0.0,
    names.METRIC_TENANT_WAITING: 0.0,
}


def test_the_forecast_reckons_with_what_is_emitted(tmp_path: Path) -> None:
    functions = emitted.functions(10, 50)
    one, many = tmp_path / "one", tmp_path / "many"
    one.mkdir()
    many.mkdir()
    alone, eight = agent(one, 1), agent(many, 8)
    tenant = emitted.tenant(TENANT_VALUES, configs.load(configs.training()))
    more = len(eight.series) - len(alone.series)
    slots = control_plane.Emission((eight.log_bytes - alone.log_bytes) / 8, more / 8)
    counted = {
        "CONTROLLER": per_group(functions[names.SERVICE_CONTROLLER], 10),
        "HEALTH": per_group(functions[names.SERVICE_HEALTH], 10),
        "SCALER": per_group(functions[names.SERVICE_SCALER], 1),
        "QUEUE": per_group(functions[names.SERVICE_QUEUES], 1),
        "INSTANCE": per_group(alone, 1),
        "SLOT": slots,
        "TENANT": per_group(tenant, 1),
    }
    known: dict[str, control_plane.Emission] = {name: getattr(control_plane, name) for name in counted}
    log_bytes = {name: emission.log_bytes for name, emission in counted.items()}
    assert {name: one.log_bytes for name, one in known.items()} == pytest.approx(log_bytes, rel=WITHIN)
    assert {name: one.metrics for name, one in known.items()} == {n: e.metrics for n, e in counted.items()}
    assert emitted.heartbeat_bytes() <= 1024  # one write


def per_group(found: emitted.Emitted, groups: int) -> control_plane.Emission:
    return control_plane.Emission(found.log_bytes / groups, len(found.series) / groups)


def bill(functions: dict[str, emitted.Emitted], alone: emitted.Emitted, groups: int, instances: int) -> float:
    """Return the price of what was counted, without alarms, dashboard and duration of functions."""
    parts = [functions[names.SERVICE_CONTROLLER], functions[names.SERVICE_HEALTH]]
    log_bytes = sum(part.log_bytes for part in parts) + instances * alone.log_bytes + 2 * 700
    series = sum(len(part.series) for part in parts) + groups * len(alone.series)
    calls = sum((part.calls for part in parts), Counter[str]())
    reads = sum(part.items for part in parts)
    writes = instances * 60 / Config.heartbeat_seconds + calls["put_item"]
    return (
        series * 0.30
        + log_bytes * MINUTES / 1e9 * 0.50
        + writes * MINUTES / 1e6 * 0.625
        + reads * MINUTES / 1e6 * 0.125 / 2
        + 18 * MINUTES / 1e6 * 0.40
    )


def services(number: int, size: int) -> dict[str, Any]:
    capacity = {"target": size, "max": 2 * size, "instanceTypes": ["g5.xlarge"], "kind": "mixed-asg"}
    return stack_file([service(f"answers-{n}", **capacity) for n in range(number)])


@pytest.mark.long
@pytest.mark.parametrize(("number", "size", "most"), [(1, 8, 12), (10, 50, 150)])
def test_a_fleets_control_plane_costs_what_is_counted(
    tmp_path: Path, number: int, size: int, most: float
) -> None:
    forecast = costs(services(number, size))
    assert sum(forecast.values()) <= most, forecast
    fixed = {"alarms", "dashboards", "function requests", "function GiB-seconds"}
    counted = bill(emitted.functions(number, size), agent(tmp_path, 1), number, number * size)
    usage = sum(cost for item, cost in forecast.items() if item not in fixed)
    assert usage == pytest.approx(counted, rel=WITHIN)


@pytest.mark.long
def test_a_thousand_tenants_on_63_hosts_cost_less_than_400_dollars() -> None:
    file = yaml.safe_load((REPOSITORY / "stacks" / "Pulumi.shared.yaml").read_text("utf-8"))["config"]
    [host] = file["gpu-spot:sharedHosts"]
    template = {"cpus": 1, "memoryGiB": 4, "image": host["tenants"][2]["image"], "containerPort": 8888}
    host["tenants"] = [
        {**template, "name": f"tenant-{n}", "uid": 2001 + n, "hostPort": 8001 + n} for n in range(16)
    ]
    one = costs(file)
    file["gpu-spot:sharedHosts"] = [{**host, "name": name} for name in ("lab", "studio")]
    two = costs(file)
    total = sum(cost + 62 * (two[item] - cost) for item, cost in one.items())
    assert total <= 400, (one, two)
