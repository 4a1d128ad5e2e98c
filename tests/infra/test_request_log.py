"""A service that scales by a request log: its metric filters, permissions, alarms, and what is refused."""

from __future__ import annotations

import json
from typing import Any, Final

import yaml

from contracts import names
from contracts.group import scaling_settings
from contracts.group.scaling_settings import RequestLogSettings
from gpu_spot.declared.stackfile import load
from infra.settings import load_settings
from pulumi_on_moto import deploy, sandbox
from tests.apart import apart
from tests.infra.declared import ROOT, Run, edited_stack, in_service, shipped
from tests.oracles.log_patterns import matched, published

ARRIVALS: Final = '{ $.event = "search" }'
ENDS: Final = '{ $.event = "result" && $.took_ms = * }'
LOG: Final = {
    "group": "/search/requests",
    "pattern": ARRIVALS,
    "seconds": "$.took_ms",
    "secondsPattern": ENDS,
    "unit": "milliseconds",
}
COMMON_LOG: Final = '127.0.0.1 - frank [10/Oct/2000:13:25:15 -0700] "GET /search?q=a HTTP/1.0" 200 1534 0.731'
FIELDS: Final = "[ip, id, user, time, request, status = 2*, size, seconds]"


def changed(log: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    raw = yaml.safe_load((ROOT / "stacks" / "Pulumi.dev.yaml").read_text("utf-8"))["config"]
    service = raw["gpu-spot:services"][0]
    service["scaling"] = {"source": "log", "log": LOG if log is None else log, **more}
    return dict(raw)


def stack(log: dict[str, Any] = LOG) -> Run:
    return edited_stack(in_service(scaling={"source": "log", "log": log}))


def filters(of: Run) -> dict[str, dict[str, Any]]:
    return {one["metricTransformation"]["name"]: one for one in of.of("LogMetricFilter").values()}


def transformation(of: dict[str, Any]) -> dict[str, Any]:
    """The transformation with the API's names."""
    given = of["metricTransformation"]
    return {"metricValue": given["value"], "defaultValue": given["defaultValue"]}


def test_its_metric_filters_count_requests_and_their_seconds() -> None:
    known = stack()
    requests, seconds = (filters(known)[f"dev/inference/{what}"] for what in ("requests", "seconds"))
    for one in (requests, seconds):
        assert one["logGroupName"] == "/search/requests"
        assert one["metricTransformation"]["namespace"] == names.REQUEST_LOG_NAMESPACE
        assert "dimensions" not in one["metricTransformation"]
    arrival, end = '{"event": "search", "q": "a"}', '{"event": "result", "took_ms": 250}'
    broken = '{"event": "result", "took_ms": "fast"}'
    minutes = [[arrival, arrival, end], ['{"event": "health"}'], [], [broken]]
    assert published(requests["pattern"], transformation(requests), minutes) == [
        (2, 2.0),
        (1, 0.0),
        None,
        (1, 0.0),
    ]
    assert published(seconds["pattern"], transformation(seconds), minutes) == [
        (1, 250.0),
        (1, 0.0),
        None,
        None,
    ]
    text = known.the("Parameter", "inference-scaling")["insecureValue"]
    assert scaling_settings.parse(text).log == RequestLogSettings(None, 0.001, counts_ended=False)


def _deployed(_: str) -> list[dict[str, Any]]:
    """Deploy on moto and return the log group's filters."""
    scaling = {"services[0].scaling": {"source": "log", "log": LOG}}
    config = load(ROOT, "dev", scaling)
    with sandbox(config.region) as clients:
        clients("logs").create_log_group(logGroupName="/search/requests")
        deploy(clients, config)
        found = clients("logs").describe_metric_filters(logGroupName="/search/requests")
        return list(found["metricFilters"])


def test_the_deployed_filters_match_lines() -> None:
    found = apart(_deployed, "")
    assert {one["filterPattern"] for one in found} == {ARRIVALS, ENDS}
    lines = ['{"event": "search"}', '{"event": "result", "took_ms": 250}']
    seen = {
        one["metricTransformations"][0]["metricName"]: published(
            one["filterPattern"], one["metricTransformations"][0], [lines, lines[:1]]
        )
        for one in found
    }
    assert seen == {
        "dev/inference/requests": [(1, 1.0), (1, 1.0)],
        "dev/inference/seconds": [(1, 250.0), (1, 0.0)],
    }


def test_fields_between_spaces_and_terms_match_lines() -> None:
    found = matched(FIELDS, COMMON_LOG)
    assert found is not None
    assert found["$seconds"] == "0.731"
    assert matched(FIELDS, COMMON_LOG.replace(" 200 ", " 404 ")) is None
    assert matched('"GET /search"', COMMON_LOG) == {}
    assert matched("POST", COMMON_LOG) is None
    settings = load_settings(changed({"group": "g", "pattern": FIELDS, "seconds": "$seconds"}))
    scaling = settings.services[0].scaling
    assert scaling is not None
    assert scaling.log is not None
    assert scaling.log.contract == RequestLogSettings(None, 1.0, counts_ended=True)


def test_stated_seconds_need_one_filter_only() -> None:
    known = stack({"group": "g", "pattern": "POST", "secondsPerRequest": 1.5})
    assert [*filters(known)] == ["dev/inference/requests"]
    text = known.the("Parameter", "inference-scaling")["insecureValue"]
    assert scaling_settings.parse(text).log == RequestLogSettings(1.5)


def test_it_may_read_metrics_and_has_the_alarms_of_the_scaler_but_none_of_a_queue() -> None:
    known = stack()
    policy = known.policy("scaler-function")
    [reads] = [one for one in policy["Statement"] if "cloudwatch:GetMetricData" in one["Action"]]
    assert (reads["Action"], reads["Resource"]) == (["cloudwatch:GetMetricData"], ["*"])
    alarms = known.of("MetricAlarm").values()
    assert not {one["metricName"] for one in alarms if one.get("metricName", "").startswith("Queue")}
    [unknown] = [one for one in alarms if one.get("metricName") == names.METRIC_SCALING_LOAD_UNKNOWN]
    assert unknown["dimensions"]["group"] == "inference"
    assert not known.of("LogMetricFilter").keys() & shipped("dev").of("LogMetricFilter").keys()
    body = json.loads(known.the("Dashboard", "board")["dashboardBody"])
    assert "QueueReady" not in json.dumps(body)
    assert names.METRIC_SCALING_TARGET in json.dumps(body)
