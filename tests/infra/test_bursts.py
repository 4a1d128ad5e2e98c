"""Warnings of a preview: an allowed wait that a burst exceeds, and what would hold it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from contracts import names
from contracts.group import scaling_settings
from contracts.group.scaling_settings import Floor, ScalingSettings
from infra.catalogue.on_demand_prices import price
from infra.schema.services.bursts import held_wait, needed_headroom
from infra.settings import load_settings
from lambdas.handlers import scaler as handler
from tests.infra.declared import HEADINGS, ROOT, Run, edited_stack, in_capacity, in_service, shipped
from tests.infra.training import EXISTING

CAPACITY = {"kind": "mixed-asg", "target": 8, "max": 20, "instanceTypes": ["g6.xlarge"]}


def warnings(scaling: dict[str, Any]) -> list[str]:
    raw = yaml.safe_load((ROOT / "stacks" / "Pulumi.dev.yaml").read_text("utf-8"))["config"]
    raw["gpu-spot:services"] = [
        {"name": "ocr", "command": ["serve"], "queue": EXISTING, "scaling": scaling, "capacity": CAPACITY}
    ]
    return [line for line in load_settings(raw).warnings() if "waitSeconds" in line]


def test_a_wait_that_a_burst_exceeds_is_answered_with_what_can_be_held_and_its_price() -> None:
    [line] = warnings({"waitSeconds": 1})
    dollars = 2 * (price("g6.xlarge", "us-west-2") or 0.0)  # a quarter of eight
    assert line.startswith("gpu-spot:services[0].scaling.waitSeconds: 1 s is less than a burst allows")
    assert "requests wait up to 48 s; scaling.headroom 0.25 holds 1 s" in line
    assert f"for up to {dollars:.2f} dollars an hour at a load of 8" in line


@pytest.mark.parametrize("scaling", [{}, {"waitSeconds": 48}, {"waitSeconds": 1, "headroom": 0.25}])
def test_a_wait_that_can_be_held_is_no_warning(scaling: dict[str, Any]) -> None:
    assert warnings(scaling) == []


@given(st.floats(1, 3600))
def test_the_needed_headroom_holds_the_wait(wait: float) -> None:
    needed = needed_headroom(wait)
    assert held_wait(needed) <= wait + 1e-6
    if needed >= 0.01:
        assert held_wait(needed - 0.0101) > wait - 1e-6


FLOOR = {"min": 2, "from": "07:00", "to": "19:00", "days": ["mon", "fri"]}
SCALING = {"waitSeconds": 30, "min": 1, "floors": [FLOOR]}


def stack(scaling: dict[str, Any], **capacity: Any) -> Run:
    service = in_service(command=["serve"], queue=EXISTING, scaling=scaling, slotsPerGpu=2)
    return edited_stack({**service, **in_capacity(**capacity)})


def owned(of: Run, name: str) -> list[str]:
    [found] = [one for one in of.declared if one["name"] == name and one["type"].endswith(":Parameter")]
    ignored: list[str] = found["ignore_changes"]
    return ignored


def test_the_scalers_parameter_has_the_settings_of_the_stack_file() -> None:
    known = stack(SCALING, target=2, max=6)
    text = known.the("Parameter", "inference-scaling")["insecureValue"]
    floor = Floor(2, 420, 1140, frozenset({0, 4}))
    # One of max is left for a swap between spot and on-demand.
    assert scaling_settings.parse(text) == ScalingSettings(1, 5, 2, 30, (floor,))
    function = known.the("Function", "scaler")
    assert function["handler"] == f"{handler.__name__}.{handler.handler.__name__}"
    assert function["timeout"] < 60
    assert known.the("EventRule", "scaler")["scheduleExpression"] == "rate(1 minute)"
    # A failed minute is not retried concurrently with the next: only one invocation writes the target.
    again = known.the("FunctionEventInvokeConfig", "scaler")
    assert (again["maximumRetryAttempts"], again["maximumEventAgeInSeconds"]) == (0, 60)
    assert known.exports["scalerLogGroup"]


def test_gpus_are_slots_if_the_target_counts_them() -> None:
    types = ["g5.xlarge", "g5.12xlarge"]
    fallback = {"warmInstances": 0}
    known = stack(SCALING, instanceTypes=types, unit="gpus", target=8, max=20, fallback=fallback)
    found = scaling_settings.parse(known.the("Parameter", "inference-scaling")["insecureValue"])
    assert (found.maximum, found.per_slot) == (16, 2)


def test_the_scaler_owns_the_target_except_in_a_dry_run() -> None:
    name = "inference-target"
    assert owned(stack(SCALING), name) == ["insecureValue"]
    assert owned(stack({**SCALING, "dryRun": True}), name) == []
    assert owned(shipped("dev"), name) == []
    assert "scaler" not in shipped("dev").of("Function")


def test_it_may_write_targets_of_services_that_scale_only() -> None:
    known = stack(SCALING)
    granted = known.statements("scaler-function")
    [target] = granted["WriteTargets"]["Resource"]
    assert target.endswith(":parameter/gpu-spot/dev/groups/inference/target")
    remembers = granted["RememberScaling"]["Condition"]
    assert remembers["ForAllValues:StringLike"] == {"dynamodb:LeadingKeys": ["*@scaling"]}
    assert remembers["Null"] == {"dynamodb:LeadingKeys": "false"}
    actions = {action for one in granted.values() for action in one["Action"]}
    assert not {one for one in actions if one.startswith(("autoscaling:", "sns:"))}


def test_alarms_and_plot_use_metrics_that_the_handler_emits() -> None:
    known = stack(SCALING)
    own = {"group": "inference", "stack": "dev", "service": names.SERVICE_SCALER}
    variables = known.the("Function", "scaler")["environment"]["variables"]
    assert variables["POWERTOOLS_SERVICE_NAME"] == names.SERVICE_SCALER
    watched = {a["metricName"] for a in known.of("MetricAlarm").values() if a.get("dimensions") == own}
    assert watched == {
        *(names.METRIC_SCALING_ERRORS, names.METRIC_SCALING_LOAD_UNKNOWN),
        *(names.METRIC_SCALING_THROUGHPUT_UNKNOWN, names.METRIC_SCALING_AT_MAXIMUM),
    }
    body = json.loads(known.the("Dashboard", "board")["dashboardBody"])
    lines = [line for widget in body["widgets"] for line in widget["properties"].get("metrics", [])]
    drawn = {line[1] for line in lines if len(line) > 1 and line[1].startswith("Scaling")}
    assert drawn == {names.METRIC_SCALING_DESIRED, names.METRIC_SCALING_TARGET}


def test_every_alarm_of_the_scaler_has_a_heading_in_the_runbook() -> None:
    ends = ("load-unknown", "throughput-unknown", "at-maximum", "scaler-errors")
    expected = {f"<group>-{end}" for end in ends} | {"scaler-not-running", "scaler-errors"}
    assert expected <= HEADINGS


def test_a_sample_stack_has_a_dry_run() -> None:
    raw = yaml.safe_load((ROOT / "stacks" / "Pulumi.ocr.yaml").read_text("utf-8"))["config"]
    service, _ = load_settings(raw).services
    assert service.scaling is not None
    assert (service.scaling.dry_run, service.capacity.max_target) == (True, 7)
