"""The state of an SQS queue from responses of SQS and CloudWatch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from contracts.watched_queue import WatchedQueue
from lambdas.aws.queues.sqs import SqsReader
from lambdas.core.queues.history import QueueHistory
from tests.models import moto

ACCOUNT = "123456789012"
QUEUE = WatchedQueue("ocr", "sqs", "ocr-queue", ACCOUNT)
AT = 1_700_000_030.0


class CloudWatch:
    """Returns the given values of one queue, newest first, as ``GetMetricData`` does."""

    def __init__(self, **values: list[float]) -> None:
        self.values = values
        self.request: dict[str, Any] = {}

    def get_metric_data(self, **request: Any) -> dict[str, Any]:
        self.request = request
        names = [query["Id"] for query in request["MetricDataQueries"]]
        return {"MetricDataResults": [{"Id": name, "Values": self.values.get(name, [])} for name in names]}


@pytest.fixture
def sqs() -> Iterator[Any]:
    with moto():
        yield boto3.client(
            "sqs", region_name="us-west-2", aws_access_key_id="test", aws_secret_access_key="test"
        )


def fill(sqs: Any, waiting: int, in_flight: int) -> None:
    url = sqs.create_queue(QueueName=QUEUE.name)["QueueUrl"]
    for _ in range(in_flight + waiting):
        sqs.send_message(QueueUrl=url, MessageBody="x")
    if in_flight:
        sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=in_flight)


def test_lengths_are_from_sqs_and_rates_from_whole_minutes(sqs: Any) -> None:
    fill(sqs, 3, 2)
    cloudwatch = CloudWatch(oldest=[95.0, 35.0], sent=[120.0, 1.0], deleted=[90.0], empty=[4.0])
    past = QueueHistory(AT - 60)
    state, history = SqsReader(sqs, cloudwatch).observe(QUEUE, past, AT, 5.0)
    assert state is not None
    assert (state.observed_at, state.ready, state.in_flight, state.oldest_seconds) == (AT, 3, 2, 95.0)
    assert (state.publish_rate, state.ack_rate, state.consumers) == (2.0, 1.5, 1)
    assert history is past
    assert cloudwatch.request["EndTime"].timestamp() == AT // 60 * 60  # a whole minute
    assert cloudwatch.request["ScanBy"] == "TimestampDescending"
    metric = cloudwatch.request["MetricDataQueries"][0]["MetricStat"]["Metric"]
    assert metric["Dimensions"] == [{"Name": "QueueName", "Value": "ocr-queue"}]


def test_without_ready_messages_the_age_is_0(sqs: Any) -> None:
    fill(sqs, 0, 2)
    state, _ = SqsReader(sqs, CloudWatch(oldest=[95.0])).observe(QUEUE, QueueHistory(), AT, 5.0)
    assert state is not None
    assert (state.in_flight, state.oldest_seconds, state.consumers) == (2, 0.0, 0)


def test_delayed_messages_do_not_count_as_ready(sqs: Any) -> None:
    fill(sqs, 1, 0)
    url = sqs.get_queue_url(QueueName=QUEUE.name)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=900)
    state, _ = SqsReader(sqs, CloudWatch()).observe(QUEUE, QueueHistory(), AT, 5.0)
    assert state is not None
    assert state.ready == 1


def test_a_missing_queue_is_an_error(sqs: Any) -> None:
    with pytest.raises(ClientError, match="NonExistentQueue"):
        SqsReader(sqs, CloudWatch()).observe(QUEUE, QueueHistory(), AT, 5.0)
