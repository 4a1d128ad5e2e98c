"""Services that scale: ownership of the target, settings and permissions of the scaler, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from contracts import names
from contracts.group import scaling_settings
from contracts.group.scaling_settings import Floor, ScalingSettings
from infra.settings import SettingsError, load_settings
from lambdas.handlers import scaler as handler
from tests.infra.declared import ROOT, Run, run, shipped, variant
from tests.infra.queues import EXISTING
from tests.infra.runbook import HEADINGS

FLOOR = {"min": 2, "from": "07:00", "to": "19:00", "days": ["mon", "fri"]}
SCALING = {"waitSeconds": 30, "min": 1, "floors": [FLOOR]}
CAPACITY = {"kind": "mixed-asg", "target": 2, "max": 6, "instanceTypes": ["g5.xlarge", "g6.xlarge"]}


def stack(folder: Path, scaling: dict[str, Any], **capacity: Any) -> Run:
    def change(config: dict[str, Any]) -> None:
        service = config["gpu-spot:services"][0]
        service |= {"command": ["serve"], "queue": EXISTING, "scaling": scaling, "slotsPerGpu": 2}
        service["capacity"] |= capacity

    return run("known", variant(folder, change), "dev")


def owned(of: Run, name: str) -> list[str]:
    [found] = [one for one in of.declared if one["name"] == name and one["type"].endswith(":Parameter")]
    ignored: list[str] = found["ignore_changes"]
    return ignored


def test_the_scalers_parameter_has_the_settings_of_the_stack_file(tmp_path: Path) -> None:
    known = stack(tmp_path, SCALING, target=2, max=6)
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


def test_gpus_are_slots_if_the_target_counts_them(tmp_path: Path) -> None:
    types = ["g5.xlarge", "g5.12xlarge"]
    fallback = {"warmInstances": 0}
    known = stack(tmp_path, SCALING, instanceTypes=types, unit="gpus", target=8, max=20, fallback=fallback)
    found = scaling_settings.parse(known.the("Parameter", "inference-scaling")["insecureValue"])
    assert (found.maximum, found.per_slot) == (16, 2)


def test_the_scaler_owns_the_target_except_in_a_dry_run(tmp_path: Path) -> None:
    name = "gpu-spot-dev-inference-target"
    assert owned(stack(tmp_path, SCALING), name) == ["insecureValue"]
    (tmp_path / "dry").mkdir()
    assert owned(stack(tmp_path / "dry", {**SCALING, "dryRun": True}), name) == []
    assert owned(shipped("dev"), name) == []
    assert "gpu-spot-dev-scaler" not in shipped("dev").of("Function")


def test_it_may_write_targets_of_services_that_scale_only(tmp_path: Path) -> None:
    known = stack(tmp_path, SCALING)
    policy = json.loads(known.the("RolePolicy", "scaler-function")["policy"])
    granted = {one["Sid"]: one for one in policy["Statement"]}
    [target] = granted["WriteTargets"]["Resource"]
    assert target.endswith(":parameter/gpu-spot/dev/groups/inference/target")
    remembers = granted["RememberScaling"]["Condition"]
    assert remembers["ForAllValues:StringLike"] == {"dynamodb:LeadingKeys": ["*@scaling"]}
    assert remembers["Null"] == {"dynamodb:LeadingKeys": "false"}
    actions = {action for one in granted.values() for action in one["Action"]}
    assert not {one for one in actions if one.startswith(("autoscaling:", "sns:"))}


def test_alarms_and_plot_use_metrics_that_the_handler_emits(tmp_path: Path) -> None:
    known = stack(tmp_path, SCALING)
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


@pytest.mark.parametrize(
    ("scaling", "service", "capacity", "says"),
    [
        ({"min": -1}, {}, {}, "scaling.min: -1, allowed: at least 0"),
        ({"waitSeconds": 0}, {}, {}, "scaling.waitSeconds: 0, allowed: at least 1"),
        ({"max": 9}, {}, {}, "scaling.max: unknown key"),
        ({}, {"queue": None}, {}, "scaling: without a queue"),
        ({}, {}, {"onDemandBase": 2}, "scaling: min 1 is below capacity.onDemandBase, allowed: at least 2"),
        ({"min": 6}, {}, {}, "scaling: capacity.max allows a target of 5"),
        ({"floors": [{**FLOOR, "min": 7}]}, {}, {}, "allowed: at least 7, the highest of min and floors"),
        ({"floors": [{**FLOOR, "to": "07:00"}]}, {}, {}, "floors[0].to: 07:00 is not after 07:00"),
        ({"floors": [{**FLOOR, "from": "7:00"}]}, {}, {}, "floors[0].from"),
        ({"floors": [{**FLOOR, "days": ["mon", "mon"]}]}, {}, {}, "days: 'mon' is listed twice"),
        ({"floors": [{**FLOOR, "days": ["monday"]}]}, {}, {}, "floors[0].days[0]"),
        ({}, {}, {"instanceTypes": ["g5.xlarge", "g5.12xlarge"]}, "different numbers of GPUs"),
        (
            {},
            {},
            {"kind": "spot-fleet", "fleetType": "request", "fallback": {"enabled": False}},
            "scaling: with fleetType 'request'",
        ),
    ],
)
def test_invalid_scaling_is_rejected_by_its_key(
    scaling: dict[str, Any], service: dict[str, Any], capacity: dict[str, Any], says: str
) -> None:
    given = {"name": "ocr", "command": ["serve"], "queue": EXISTING, "scaling": scaling, **service}
    raw = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text("utf-8"))["config"]
    raw["gpu-spot:services"] = [{**given, "capacity": {**CAPACITY, **capacity}}]
    with pytest.raises(SettingsError) as caught:
        load_settings(raw)
    assert says in str(caught.value)


def test_a_sample_stack_has_a_dry_run() -> None:
    raw = yaml.safe_load((ROOT / "Pulumi.ocr.yaml").read_text("utf-8"))["config"]
    service, _ = load_settings(raw).services
    assert service.scaling is not None
    assert (service.scaling.dry_run, service.capacity.max_target) == (True, 7)
