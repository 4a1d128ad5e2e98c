"""Alarms and dashboard watch metrics that exist, under the names by which they are sent."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from contracts import names
from contracts.agent.config import Metrics
from lambdas.aws.capacity.controller import GroupOutcome
from lambdas.core.money.costs import HourlyCost
from lambdas.handlers import controller
from lambdas.handlers.metrics import emit
from tests.infra import queues
from tests.infra.declared import run, shipped, variant
from tests.infra.runbook import HEADINGS, heading
from userdata.render import CLOUD_INIT_LOG, UNIT_LOG

FACTS = dict.fromkeys(("target", "ready", "spot", "on_demand", "doomed", "above_maximum"), 1)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    """Dimensions by name of all metrics that the handler sends in the function's declared environment."""
    for name, value in shipped("dev").the("Function", "controller")["environment"]["variables"].items():
        monkeypatch.setenv(name, value)
    emit("inference", controller.gauges(GroupOutcome("inference", cost=HourlyCost(1.0, 2.0)), FACTS))
    emit("inference", {"ControllerErrors": 1})
    found: dict[str, dict[str, str]] = {}
    for line in capsys.readouterr().out.splitlines():
        entry = json.loads(line)
        [metrics] = entry["_aws"]["CloudWatchMetrics"]
        assert metrics["Namespace"] == names.METRIC_NAMESPACE
        [keys] = metrics["Dimensions"]
        found |= {metric["Name"]: {key: entry[key] for key in keys} for metric in metrics["Metrics"]}
    return found


def test_alarms_watch_what_the_controller_sends(sent: dict[str, dict[str, str]]) -> None:
    declared = shipped("dev").of("MetricAlarm").values()
    controllers = names.SERVICE_CONTROLLER
    ours = [a for a in declared if a["dimensions"].get("service") == controllers]
    assert {a["metricName"] for a in ours} == {
        "Shortage",
        "OnDemand",
        "AboveMaximum",
        "AlarmCauses",
        "Troubles",
        "ControllerErrors",
    }
    for alarm in ours:
        assert alarm["dimensions"] == sent[alarm["metricName"]], alarm["metricName"]


def test_what_instances_send_is_in_a_namespace_of_their_own() -> None:
    """Of boot.sh and of the agent: tests/infra/test_boot.py and tests/node/test_metrics.py have theirs."""
    alarms = shipped("dev").of("MetricAlarm").values()
    theirs = [a for a in alarms if a["namespace"] == names.INSTANCE_NAMESPACE]
    assert {a["metricName"] for a in theirs} == {"BootFailures", "GpusLost"}
    assert all(a["dimensions"] == {"group": "inference", "stack": "dev"} for a in theirs)


def test_a_job_has_an_alarm_for_its_volume() -> None:
    alarms = shipped("research").of("MetricAlarm").values()
    [full] = [a for a in alarms if a["metricName"] == "DataVolumeFree"]
    assert full["dimensions"] == {"group": "resnet", "stack": "research"}
    asked = (full["statistic"], full["comparisonOperator"], full["threshold"], full["treatMissingData"])
    assert asked == ("Minimum", "LessThanThreshold", 10, "notBreaching")


def test_an_alarm_for_a_cause_stands_as_long_as_the_cause() -> None:
    [refused] = [a for a in shipped("dev").of("MetricAlarm").values() if a["metricName"] == "AlarmCauses"]
    # The controller sends the gauge each minute: no minute without it, no minute with a sum of one.
    assert (refused["statistic"], refused["period"], refused["evaluationPeriods"]) == ("Maximum", 300, 1)


def dashboard() -> dict[str, Any]:
    body: dict[str, Any] = json.loads(shipped("dev").the("Dashboard", "board")["dashboardBody"])
    return body


def test_the_dashboard_draws_what_the_controller_sends(sent: dict[str, dict[str, str]]) -> None:
    drawn = [
        line
        for widget in dashboard()["widgets"]
        for line in widget["properties"].get("metrics", [])
        if line[0] == names.METRIC_NAMESPACE and "controller" in line
    ]
    assert {line[1] for line in drawn} == {
        *("Target", "Ready", "Spot", "OnDemand", "Doomed", "Shortage"),
        *("HourlyCost", "HourlyCostOnDemand"),
    }
    for _, metric, *dimensions, _options in drawn:
        assert dict(zip(dimensions[::2], dimensions[1::2], strict=True)) == sent[metric]


def test_the_picture_in_the_docs_has_the_widgets_of_the_dashboard() -> None:
    titles = [widget["properties"]["title"] for widget in dashboard()["widgets"]]
    picture = (Path(__file__).parents[2] / "docs/img/dashboard.svg").read_text("utf-8")
    assert re.findall(r'class="t">([^<]*)<', picture) == titles


def test_the_dashboard_draws_what_the_agent_sends() -> None:
    configuration = json.loads(shipped("dev").the("Parameter", "inference-agent")["insecureValue"])
    assert configuration["metrics"]["namespace"] == names.INSTANCE_NAMESPACE
    gpus = configuration["metrics"]["metrics_collected"]["nvidia_gpu"]
    [added_up] = configuration["metrics"]["aggregation_dimensions"]
    drawn = [
        line
        for widget in dashboard()["widgets"]
        for line in widget["properties"].get("metrics", [])
        if len(line) > 1 and line[1].startswith("nvidia_smi_")
    ]
    assert drawn
    for _, metric, *dimensions, _options in drawn:
        assert metric.removeprefix("nvidia_smi_") in gpus["measurement"]
        assert dict(zip(dimensions[::2], dimensions[1::2], strict=True)) == gpus["append_dimensions"]
        assert set(added_up) == set(gpus["append_dimensions"])


def test_the_number_of_gpu_metrics_does_not_grow_with_gpus_and_instances() -> None:
    configuration = json.loads(shipped("dev").the("Parameter", "inference-agent")["insecureValue"])
    gpus = configuration["metrics"]["metrics_collected"]["nvidia_gpu"]
    assert gpus["drop_original_metrics"] == gpus["measurement"]
    # A month of a custom metric is $0.30: docs/node-agent.md says what a group costs at most.
    page = (Path(__file__).parents[2] / "docs" / "node-agent.md").read_text("utf-8")
    assert f"${0.3 * len(gpus['measurement']):.2f} a group" in page


def test_the_cloudwatch_agent_hears_our_lines_and_reads_our_logs() -> None:
    known = shipped("dev")
    configuration = json.loads(known.the("Parameter", "inference-agent")["insecureValue"])["logs"]
    assert configuration["metrics_collected"]["emf"]["service_address"].endswith(f":{Metrics().emf_port}")
    files = configuration["logs_collected"]["files"]["collect_list"]
    assert {file["file_path"] for file in files} == {UNIT_LOG, CLOUD_INIT_LOG}
    declared = known.the("LogGroup", "inference-log")
    assert {file["log_group_name"] for file in files} == {declared["name"]}
    assert declared["retentionInDays"] == 30


@pytest.mark.parametrize("stack", ["dev", "queued"])
def test_the_dashboard_is_one_that_cloudwatch_takes(stack: str, tmp_path: Path) -> None:
    """CloudWatch guide, "Dashboard body structure and syntax", and its quotas of dashboards."""
    of = shipped("dev") if stack == "dev" else queues.stack(tmp_path)
    widgets = json.loads(of.the("Dashboard", "board")["dashboardBody"])["widgets"]
    titles = [widget["properties"]["title"] for widget in widgets]
    assert ("inference: requests a second" in titles) == (stack == "queued")
    assert {"inference: workers", "inference: US dollars an hour"} < {*titles}
    assert len(set(titles)) == len(titles) <= 500
    drawn = [widget["properties"].get("metrics", []) for widget in widgets]
    assert sum(map(len, drawn)) <= 2_500
    for lines in drawn:
        assert len(lines) <= 500
        ids = [line[-1]["id"] for line in lines if "id" in line[-1]]
        assert len(set(ids)) == len(ids)
        assert all(re.fullmatch("[a-z][A-Za-z0-9_]*", name) for name in ids)
        for *metric, options in lines:
            assert metric or {"expression", "label"} <= options.keys()
            assert not metric or (len(metric) >= 4 and len(metric) % 2 == 0)  # pairs of dimensions


def test_a_queues_plots_draw_what_the_watcher_sends(tmp_path: Path) -> None:
    of = queues.stack(tmp_path)
    variables = of.the("Function", "queues")["environment"]["variables"]
    expected = ["group", "inference", "stack", "dev", "service", variables["POWERTOOLS_SERVICE_NAME"]]
    body = json.loads(of.the("Dashboard", "board")["dashboardBody"])
    lines = [line for widget in body["widgets"] for line in widget["properties"].get("metrics", [])]
    drawn = [line for line in lines if len(line) > 1 and line[1].startswith("Queue")]
    assert {line[1] for line in drawn} <= {value for name, value in vars(names).items() if "QUEUE" in name}
    assert len(drawn) == 5
    assert all(line[2:-1] == expected for line in drawn)


def test_widgets_fill_rows_without_overlap() -> None:
    taken = set()
    for widget in dashboard()["widgets"]:
        assert widget["x"] + widget["width"] <= 24
        cells = {(widget["x"] + i, widget["y"]) for i in range(widget["width"])}
        assert not cells & taken
        taken |= cells


def test_every_alarm_reaches_the_topic_and_says_when_it_is_over() -> None:
    for name, alarm in shipped("prod").of("MetricAlarm").items():
        assert alarm["alarmActions"] == alarm["okActions"] == ["arn:gpu-spot-prod-alarms"], name
        assert alarm["alarmDescription"].endswith("."), name
        # CloudWatch evaluates at most a day of periods.
        assert alarm["period"] * alarm["evaluationPeriods"] <= 86_400, name


def test_every_alarm_has_a_heading_in_the_runbook_and_every_heading_an_alarm() -> None:
    told = set()
    for stack in ("ocr", "prod", "research", "shared"):
        for alarm in shipped(stack).of("MetricAlarm"):
            found = heading(alarm.removeprefix(f"gpu-spot-{stack}-"))
            assert found, alarm
            told.add(found)
    # What no environment that ships asks for: a deadline, a budget, a queue in SQS (test_sqs.py).
    assert {*HEADINGS} - told == {"<job>-deadline", "<job>-budget", "<group>-queue-dead"}


def test_a_job_rings_when_it_has_failed_when_it_hung_and_when_its_host_was_to_blame() -> None:
    alarms = shipped("research").of("MetricAlarm").values()
    rung = {a["metricName"]: a for a in alarms if a["metricName"] in names.JOB_METRICS}
    assert set(rung) == set(names.JOB_METRICS)
    for alarm in rung.values():
        assert alarm["namespace"] == names.INSTANCE_NAMESPACE
        assert alarm["dimensions"] == {"group": "resnet", "stack": "research"}
        assert (alarm["statistic"], alarm["threshold"], alarm["treatMissingData"]) == (
            "Sum",
            1,
            "notBreaching",
        )
    services = shipped("dev").of("MetricAlarm").values()
    assert not [a for a in services if a["metricName"] in names.JOB_METRICS]


def test_silence_of_the_controller_is_an_alarm() -> None:
    alarm = shipped("dev").the("MetricAlarm", "controller-silent")
    assert (alarm["treatMissingData"], alarm["comparisonOperator"]) == ("breaching", "LessThanThreshold")


def test_every_queue_and_the_function_are_watched() -> None:
    alarms = shipped("dev").of("MetricAlarm").values()
    watched = {value for alarm in alarms for value in alarm["dimensions"].values()}
    assert {"gpu-spot-dev-wake-ups", "gpu-spot-dev-dead-letters", "gpu-spot-dev-controller"} <= watched


def test_patience_ceiling_and_listener_follow_the_settings(tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["gpu-spot:monitoring"] = {
            "email": "ops@example.com",
            "shortageMinutes": 3,
            "onDemandMinutes": 15,
        }
        config["gpu-spot:services"][0]["capacity"]["onDemandCeiling"] = 2

    known = run("known", variant(tmp_path, change))
    shortage = known.the("MetricAlarm", "inference-shortage")
    assert (shortage["evaluationPeriods"], shortage["datapointsToAlarm"]) == (3, 3)
    ceiling = known.the("MetricAlarm", "inference-on-demand")
    assert (ceiling["threshold"], ceiling["evaluationPeriods"], ceiling["period"]) == (3, 3, 300)
    assert known.the("TopicSubscription", "alarms")["endpoint"] == "ops@example.com"
    assert not shipped("dev").of("TopicSubscription")
