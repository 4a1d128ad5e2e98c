"""What rings: a metric under the dimensions of the stack's alarms, and nobody waits for it."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from contracts import names
from userdata.agent.aws.alarm_metrics import Bell


def test_a_ring_is_one_in_the_metric_of_the_group(aws: Any) -> None:
    client: Any = boto3.client("cloudwatch", region_name="us-west-2")
    bell = Bell(client, "research", "resnet")
    for metric in names.JOB_METRICS:
        bell.ring(metric)
    found = client.list_metrics(Namespace=names.INSTANCE_NAMESPACE)["Metrics"]
    told = {m["MetricName"]: {d["Name"]: d["Value"] for d in m["Dimensions"]} for m in found}
    assert told.keys() == set(names.JOB_METRICS)
    assert all(dimensions == {"stack": "research", "group": "resnet"} for dimensions in told.values())


def test_a_ring_that_nobody_hears_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Deaf:
        def put_metric_data(self, **_: Any) -> None:
            raise ClientError({"Error": {"Code": "Throttling", "Message": "m"}}, "PutMetricData")

    client: Any = Deaf()
    Bell(client, "s", "g").ring("JobFailures")
    assert "nobody hears the alarm" in caplog.text
