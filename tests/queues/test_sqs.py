"""The state of an SQS queue from responses of SQS and CloudWatch."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from contracts.registry.queue_state import QueueState
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
        return {"MetricDataResults": [self.result(name, request["EndTime"]) for name in names]}

    def result(self, name: str, end: datetime) -> dict[str, Any]:
        values = self.values.get(name, [])
        times = [end - timedelta(minutes=1 + number) for number in range(len(values))]
        return {"Id": name, "Timestamps": times, "Values": values, "StatusCode": "Complete"}


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
    past = QueueHistory()
    state, history = SqsReader(sqs, cloudwatch).observe(QUEUE, past, AT, 5.0)
    assert (state.observed_at, state.ready, state.in_flight, state.oldest_seconds) == (AT, 3, 2, 95.0)
    assert (state.publish_rate, state.ack_rate, state.consumers) == (2.0, 1.5, 2)
    assert history == QueueHistory(AT, oldest_seconds=95.0)
    assert cloudwatch.request["EndTime"].timestamp() == AT // 60 * 60  # a whole minute
    assert cloudwatch.request["ScanBy"] == "TimestampDescending"
    metric = cloudwatch.request["MetricDataQueries"][0]["MetricStat"]["Metric"]
    assert metric["Dimensions"] == [{"Name": "QueueName", "Value": "ocr-queue"}]


def test_a_request_in_work_for_an_hour_is_not_an_hour_of_waiting(sqs: Any) -> None:
    fill(sqs, 1, 2)
    cloudwatch = CloudWatch(oldest=[3600.0], sent=[1.0, *[0.0] * 58, 2.0])
    state, history = SqsReader(sqs, cloudwatch).observe(QUEUE, QueueHistory(AT - 60), AT, 5.0)
    assert state.oldest_seconds == 60.0
    assert history.oldest_seconds == 60.0
    # Nothing in work: all that is not deleted waits, however long ago it was sent.
    url = sqs.get_queue_url(QueueName=QUEUE.name)["QueueUrl"]
    sqs.purge_queue(QueueUrl=url)
    sqs.send_message(QueueUrl=url, MessageBody="x")
    state, _ = SqsReader(sqs, cloudwatch).observe(QUEUE, history, AT + 60, 5.0)
    assert (state.in_flight, state.oldest_seconds) == (0, 3600.0)


def test_a_value_of_a_quarter_of_an_hour_ago_is_no_rate_and_no_zero(sqs: Any) -> None:
    fill(sqs, 1, 0)
    cloudwatch = CloudWatch(sent=[60.0])
    reader = SqsReader(sqs, cloudwatch)
    found = cloudwatch.result

    def late(name: str, end: datetime) -> dict[str, Any]:
        return found(name, end - timedelta(minutes=15))

    cloudwatch.result = late  # type: ignore[method-assign]
    state, _ = reader.observe(QUEUE, QueueHistory(), AT, 5.0)
    assert (state.publish_rate, state.ack_rate, state.oldest_seconds, state.consumers) == (None,) * 4


def test_without_ready_messages_the_age_is_0(sqs: Any) -> None:
    fill(sqs, 0, 2)
    state, _ = SqsReader(sqs, CloudWatch(oldest=[95.0])).observe(QUEUE, QueueHistory(), AT, 5.0)
    assert (state.in_flight, state.oldest_seconds, state.consumers) == (2, 0.0, 2)


def test_an_unused_queue_is_idle_not_unknown(sqs: Any) -> None:
    fill(sqs, 0, 0)
    cloudwatch = CloudWatch()
    reader = SqsReader(sqs, cloudwatch)
    state, _ = reader.observe(QUEUE, QueueHistory(), AT, 5.0)
    assert state == QueueState(AT, 0, 0, 0.0, 0.0, 0.0, 0)
    found = cloudwatch.result
    cloudwatch.result = lambda *args: {**found(*args), "StatusCode": "InternalError"}  # type: ignore[method-assign]
    state, _ = reader.observe(QUEUE, QueueHistory(), AT, 5.0)
    assert state == QueueState(AT, 0, 0, 0.0)


def test_delayed_messages_do_not_count_as_ready(sqs: Any) -> None:
    fill(sqs, 1, 0)
    url = sqs.get_queue_url(QueueName=QUEUE.name)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=900)
    state, _ = SqsReader(sqs, CloudWatch()).observe(QUEUE, QueueHistory(), AT, 5.0)
    assert state.ready == 1


def test_a_missing_queue_is_an_error(sqs: Any) -> None:
    with pytest.raises(ClientError, match="NonExistentQueue"):
        SqsReader(sqs, CloudWatch()).observe(QUEUE, QueueHistory(), AT, 5.0)
