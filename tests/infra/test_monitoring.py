"""Alarms and dashboard use metrics that are emitted, with the same names and dimensions."""

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
from lambdas.handlers.metrics import emit, reporting
from tests.infra.declared import HEADINGS, edited_stack, heading, in_capacity, shipped
from tests.infra.training import queue_stack
from userdata.render import CLOUD_INIT_LOG, UNIT_LOG

OF_A_JOB = ("DataVolumeFree", *names.JOB_METRICS)
FACTS = dict.fromkeys(("target", "ready", "spot", "on_demand", "interrupted", "above_maximum"), 1)


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    """Dimensions by name of all metrics that the handler emits in the function's declared environment."""
    for name, value in shipped("dev").the("Function", "controller")["environment"]["variables"].items():
        monkeypatch.setenv(name, value)
    gauges = controller.gauges(GroupOutcome("inference", cost=HourlyCost(1.0, 2.0)), FACTS)
    emit("inference", dict.fromkeys(gauges, 1.0))
    emit("inference", {"ControllerErrors": 1})
    reporting(print, [], controller.logger).undecided(300.0)
    dimensions: dict[str, dict[str, str]] = {}
    for line in capsys.readouterr().out.splitlines():
        entry = json.loads(line)
        [metrics] = entry["_aws"]["CloudWatchMetrics"]
        assert metrics["Namespace"] == names.METRIC_NAMESPACE
        [keys] = metrics["Dimensions"]
        dimensions |= {metric["Name"]: {key: entry[key] for key in keys} for metric in metrics["Metrics"]}
    return dimensions


def test_alarms_use_metrics_that_the_controller_emits(emitted: dict[str, dict[str, str]]) -> None:
    declared = shipped("dev").of("MetricAlarm").values()
    service = names.SERVICE_CONTROLLER
    alarms = [alarm for alarm in declared if alarm["dimensions"].get("service") == service]
    assert {alarm["metricName"] for alarm in alarms} == {
        *("Shortage", "OnDemand", "OnDemandOnly", "AboveMaximum", "AlarmCauses"),
        *("ReadErrors", "ControllerErrors", "UndecidedSeconds"),
    }
    for alarm in alarms:
        assert alarm["dimensions"] == emitted[alarm["metricName"]], alarm["metricName"]


@pytest.mark.parametrize(
    ("stack", "group", "more"), [("dev", "inference", ()), ("research", "resnet", OF_A_JOB)]
)
def test_metrics_of_instances_have_their_own_namespace(stack: str, group: str, more: tuple[str, ...]) -> None:
    """Those of boot.sh and the agent are in tests/infra/test_boot.py and tests/node/test_metrics.py."""
    alarms = shipped(stack).of("MetricAlarm").values()
    of_instances = [alarm for alarm in alarms if alarm["namespace"] == names.INSTANCE_NAMESPACE]
    assert {alarm["metricName"] for alarm in of_instances} == {"BootFailures", "GpusLost", *more}
    assert all(a["dimensions"] == {"group": group, "stack": stack} for a in of_instances)


def dashboard() -> dict[str, Any]:
    body: dict[str, Any] = json.loads(shipped("dev").the("Dashboard", "board")["dashboardBody"])
    return body


def plotted(namespace: str, word: str) -> list[tuple[str, dict[str, str]]]:
    """Return name and dimensions of the dashboard's metrics of a namespace in which the word stands."""
    lines = [line for one in dashboard()["widgets"] for line in one["properties"].get("metrics", [])]
    drawn = [line[:-1] for line in lines if line[0] == namespace and word in " ".join(line[1:-1])]
    return [(name, dict(zip(more[::2], more[1::2], strict=True))) for _, name, *more in drawn]


def test_the_dashboard_plots_metrics_that_the_controller_emits(emitted: dict[str, dict[str, str]]) -> None:
    drawn = plotted(names.METRIC_NAMESPACE, "controller")
    assert {name for name, _ in drawn} == {
        *("Target", "Ready", "Spot", "OnDemand", "InterruptedInstances", "Shortage"),
        *("HourlyCost", "HourlyCostOnDemand"),
    }
    assert all(dimensions == emitted[name] for name, dimensions in drawn)


def test_the_picture_in_the_docs_has_the_titles_of_the_dashboard() -> None:
    titles = [widget["properties"]["title"] for widget in dashboard()["widgets"]]
    picture = (Path(__file__).parents[2] / "docs/img/dashboard.svg").read_text("utf-8")
    assert re.findall(r'class="t">([^<]*)<', picture) == titles


def test_the_dashboard_plots_metrics_that_the_agent_emits() -> None:
    """tests/node/test_metrics.py has those that the agent emits."""
    of_gpus = (names.METRIC_GPU_UTILIZATION, names.METRIC_GPU_MEMORY_USED, names.METRIC_GPU_TEMPERATURE)
    drawn = plotted(names.INSTANCE_NAMESPACE, "Gpu")
    assert {name for name, _ in drawn} == set(of_gpus)
    assert all(dimensions == {"group": "inference", "stack": "dev"} for _, dimensions in drawn)


def test_an_alarm_counts_a_metric_that_does_not_exist_as_zero() -> None:
    """Of those that are 0 unless something is wrong there is no value then."""
    alarms = [a for stack in ("dev", "ocr", "shared") for a in shipped(stack).of("MetricAlarm").values()]
    without_zero = [a for a in alarms if a.get("metricName") and not names.is_series(a["metricName"], [0.0])]
    assert len({a["metricName"] for a in without_zero}) > 8
    for alarm in without_zero:
        assert alarm["treatMissingData"] == "notBreaching", alarm["metricName"]
        assert alarm["comparisonOperator"] == "GreaterThanOrEqualToThreshold"
        assert alarm["threshold"] > 0


def test_the_cloudwatch_agent_sends_no_metrics_of_its_own() -> None:
    """Each ``PutMetricData`` costs: one a minute and instance is $0.44 a month."""
    configuration = json.loads(shipped("dev").the("Parameter", "inference-agent")["insecureValue"])
    assert configuration.keys() == {"logs"}


def test_the_cloudwatch_agent_receives_metric_lines_and_reads_logs() -> None:
    known = shipped("dev")
    configuration = json.loads(known.the("Parameter", "inference-agent")["insecureValue"])["logs"]
    assert configuration["metrics_collected"]["emf"]["service_address"].endswith(f":{Metrics().emf_port}")
    files = configuration["logs_collected"]["files"]["collect_list"]
    assert {file["file_path"] for file in files} == {UNIT_LOG, CLOUD_INIT_LOG}
    declared = known.the("LogGroup", "inference-log")
    assert {file["log_group_name"] for file in files} == {declared["name"]}
    assert declared["retentionInDays"] == 30


@pytest.mark.parametrize("stack", ["dev", "queued"])
def test_the_dashboard_is_valid_for_cloudwatch(stack: str) -> None:
    """Source: CloudWatch guide, "Dashboard body structure and syntax", and the quotas of dashboards."""
    result = shipped("dev") if stack == "dev" else queue_stack()
    widgets = json.loads(result.the("Dashboard", "board")["dashboardBody"])["widgets"]
    titles = [widget["properties"]["title"] for widget in widgets]
    assert ("inference: requests per second" in titles) == (stack == "queued")
    assert {"inference: workers", "inference: US dollars per hour"} < {*titles}
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


@pytest.mark.parametrize("stack", ["dev", "ocr"])
def test_every_axis_of_the_dashboard_has_its_unit(stack: str) -> None:
    widgets = json.loads(shipped(stack).the("Dashboard", "board")["dashboardBody"])["widgets"]
    for plot in (widget["properties"] for widget in widgets if widget["type"] == "metric"):
        used = {line[-1].get("yAxis", "left") for line in plot["metrics"]}
        assert {side for side, axis in plot["yAxis"].items() if axis["label"]} == used, plot["title"]


def test_a_queues_plots_use_metrics_that_the_watcher_emits() -> None:
    stack = queue_stack()
    variables = stack.the("Function", "queues")["environment"]["variables"]
    expected = ["group", "inference", "stack", "dev", "service", variables["POWERTOOLS_SERVICE_NAME"]]
    body = json.loads(stack.the("Dashboard", "board")["dashboardBody"])
    lines = [line for widget in body["widgets"] for line in widget["properties"].get("metrics", [])]
    plotted = [line for line in lines if len(line) > 1 and line[1].startswith("Queue")]
    assert {line[1] for line in plotted} <= {value for name, value in vars(names).items() if "QUEUE" in name}
    assert len(plotted) == 5
    assert all(line[2:-1] == expected for line in plotted)


def test_widgets_fill_rows_without_overlap() -> None:
    occupied = set()
    for widget in dashboard()["widgets"]:
        assert widget["x"] + widget["width"] <= 24
        cells = {(widget["x"] + i, widget["y"]) for i in range(widget["width"])}
        assert not cells & occupied
        occupied |= cells


def test_every_alarm_notifies_the_topic_of_alarm_and_ok() -> None:
    for name, alarm in shipped("prod").of("MetricAlarm").items():
        assert alarm["alarmActions"] == alarm["okActions"] == ["arn:gpu-spot-prod-alarms"], name
        assert alarm["alarmDescription"].endswith("."), name
        # CloudWatch evaluates at most a day of periods.
        assert alarm["period"] * alarm["evaluationPeriods"] <= 86_400, name


def test_every_alarm_has_a_heading_in_the_runbook_and_every_heading_an_alarm() -> None:
    headings = set()
    for stack in ("eks", "ocr", "prod", "research", "shared"):
        for alarm in shipped(stack).alarms():
            assert heading(alarm), alarm
            headings.add(heading(alarm))
    # No sample stack has a deadline, a budget or an address (test_http.py).
    assert {name for name in HEADINGS if "-http-" not in name} - headings == {
        *("<job>-deadline", "<job>-budget")
    }


def test_every_queue_and_the_function_have_alarms() -> None:
    alarms = shipped("dev").of("MetricAlarm").values()
    watched = {value for alarm in alarms for value in alarm["dimensions"].values()}
    assert {"gpu-spot-dev-wake-ups", "gpu-spot-dev-dead-letters", "gpu-spot-dev-controller"} <= watched


def test_periods_threshold_and_subscription_follow_the_settings() -> None:
    monitoring = {"email": "ops@example.com", "shortageMinutes": 3, "onDemandMinutes": 15}
    known = edited_stack({"monitoring": monitoring, **in_capacity(onDemandCeiling=2)})
    shortage = known.the("MetricAlarm", "inference-shortage")
    assert (shortage["evaluationPeriods"], shortage["datapointsToAlarm"]) == (3, 3)
    ceiling = known.the("MetricAlarm", "inference-on-demand")
    assert (ceiling["threshold"], ceiling["evaluationPeriods"], ceiling["period"]) == (3, 3, 300)
    assert known.the("TopicSubscription", "alarms")["endpoint"] == "ops@example.com"
    assert not shipped("dev").of("TopicSubscription")
