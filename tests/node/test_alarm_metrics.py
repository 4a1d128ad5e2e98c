"""Alarm metrics: their dimensions are those of the stack's alarms, and a failure is only logged."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from contracts import names
from userdata.agent.aws.alarm_metrics import AlarmMetrics


def test_increment_adds_one_to_the_metric_of_the_group(aws: Any) -> None:
    client: Any = boto3.client("cloudwatch", region_name="us-west-2")
    metrics = AlarmMetrics(client, "research", "resnet")
    for metric in names.JOB_METRICS:
        metrics.increment(metric)
    found = client.list_metrics(Namespace=names.INSTANCE_NAMESPACE)["Metrics"]
    dimensions_by_name = {m["MetricName"]: {d["Name"]: d["Value"] for d in m["Dimensions"]} for m in found}
    assert dimensions_by_name.keys() == set(names.JOB_METRICS)
    assert all(
        dimensions == {"stack": "research", "group": "resnet"} for dimensions in dimensions_by_name.values()
    )


def test_a_failed_increment_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    class Deaf:
        def put_metric_data(self, **_: Any) -> None:
            raise ClientError({"Error": {"Code": "Throttling", "Message": "m"}}, "PutMetricData")

    client: Any = Deaf()
    AlarmMetrics(client, "s", "g").increment("JobFailures")
    assert "alarm metric not sent" in caplog.text
