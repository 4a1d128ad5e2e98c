"""How a queue of SQS stands, by SQS's and CloudWatch's own answers."""

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
    """Tells of one queue what it is given: newest first, empty where there is nothing (``GetMetricData``)."""

    def __init__(self, **told: list[float]) -> None:
        self.told = told
        self.asked: dict[str, Any] = {}

    def get_metric_data(self, **asked: Any) -> dict[str, Any]:
        self.asked = asked
        names = [one["Id"] for one in asked["MetricDataQueries"]]
        return {"MetricDataResults": [{"Id": name, "Values": self.told.get(name, [])} for name in names]}


@pytest.fixture
def sqs() -> Iterator[Any]:
    with moto():
        yield boto3.client(
            "sqs", region_name="us-west-2", aws_access_key_id="test", aws_secret_access_key="test"
        )


def fill(sqs: Any, waiting: int, taken: int) -> None:
    url = sqs.create_queue(QueueName=QUEUE.name)["QueueUrl"]
    for _ in range(taken + waiting):
        sqs.send_message(QueueUrl=url, MessageBody="x")
    if taken:
        sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=taken)


def test_lengths_are_sqs_and_rates_are_a_minutes(sqs: Any) -> None:
    fill(sqs, 3, 2)
    cloudwatch = CloudWatch(oldest=[95.0, 35.0], sent=[120.0, 1.0], deleted=[90.0], empty=[4.0])
    past = QueueHistory(AT - 60)
    backlog, history = SqsReader(sqs, cloudwatch).look(QUEUE, past, AT, 5.0)
    assert backlog is not None
    assert (backlog.at, backlog.ready, backlog.taken, backlog.oldest) == (AT, 3, 2, 95.0)
    assert (backlog.arriving, backlog.leaving, backlog.readers) == (2.0, 1.5, 1)
    assert history is past
    assert cloudwatch.asked["EndTime"].timestamp() == AT // 60 * 60  # a whole minute
    assert cloudwatch.asked["ScanBy"] == "TimestampDescending"
    metric = cloudwatch.asked["MetricDataQueries"][0]["MetricStat"]["Metric"]
    assert metric["Dimensions"] == [{"Name": "QueueName", "Value": "ocr-queue"}]


def test_nobody_waits_where_all_is_with_workers(sqs: Any) -> None:
    fill(sqs, 0, 2)
    backlog, _ = SqsReader(sqs, CloudWatch(oldest=[95.0])).look(QUEUE, QueueHistory(), AT, 5.0)
    assert backlog is not None
    assert (backlog.taken, backlog.oldest, backlog.readers) == (2, 0.0, 0)


def test_who_may_not_be_taken_yet_does_not_wait(sqs: Any) -> None:
    fill(sqs, 1, 0)
    url = sqs.get_queue_url(QueueName=QUEUE.name)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=900)
    backlog, _ = SqsReader(sqs, CloudWatch()).look(QUEUE, QueueHistory(), AT, 5.0)
    assert backlog is not None
    assert backlog.ready == 1


def test_a_queue_that_is_not_there_is_an_error(sqs: Any) -> None:
    with pytest.raises(ClientError, match="NonExistentQueue"):
        SqsReader(sqs, CloudWatch()).look(QUEUE, QueueHistory(), AT, 5.0)
