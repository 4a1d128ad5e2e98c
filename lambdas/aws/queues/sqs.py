"""Reads the state of SQS queues from SQS and from their CloudWatch metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from contracts.registry.queue_state import QueueState
from contracts.watched_queue import WatchedQueue
from lambdas.core.queues.history import QueueHistory

_MINUTE_SECONDS: Final = 60
_LOOKBACK_SECONDS: Final = 5 * _MINUTE_SECONDS
"""Maximum age of the newest data point: metrics of SQS are published with a delay."""

# Source: SQS guide, "Available CloudWatch metrics for Amazon SQS".
_METRICS: Final = {
    "oldest": ("ApproximateAgeOfOldestMessage", "Maximum"),
    "sent": ("NumberOfMessagesSent", "Sum"),
    "deleted": ("NumberOfMessagesDeleted", "Sum"),
    "received": ("NumberOfMessagesReceived", "Sum"),
    "empty": ("NumberOfEmptyReceives", "Sum"),
}


@dataclass(frozen=True, slots=True)
class SqsReader:
    """Reads SQS queues; a queue's location is its account.

    SQS has no connections: ``consumers`` is 1 after a recent receive call, even an empty one, else 0. Metrics
    of a queue that was unused for six hours pause, and resume up to 15 minutes late.
    """

    sqs: Any
    cloudwatch: Any
    _urls: dict[tuple[str, str], str] = field(default_factory=dict)

    def observe(
        self, queue: WatchedQueue, history: QueueHistory, now: float, timeout: float
    ) -> tuple[QueueState | None, QueueHistory]:
        """Return the queue's state; the history is unused. Raises errors of AWS."""
        counts = self.sqs.get_queue_attributes(
            QueueUrl=self._url(queue),
            # Without delayed messages, which no worker can receive yet.
            AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
        )["Attributes"]
        metrics = self._metrics(queue.name, now)
        ready = int(counts["ApproximateNumberOfMessages"])
        state = QueueState(
            observed_at=now,
            ready=ready,
            in_flight=int(counts["ApproximateNumberOfMessagesNotVisible"]),
            # The metric includes in-flight messages.
            oldest_seconds=metrics["oldest"] if ready else 0.0,
            publish_rate=metrics["sent"] / _MINUTE_SECONDS,
            ack_rate=metrics["deleted"] / _MINUTE_SECONDS,
            consumers=int(metrics["received"] + metrics["empty"] > 0),
        )
        return state, history

    def _url(self, queue: WatchedQueue) -> str:
        key = queue.location, queue.name
        if key not in self._urls:
            response = self.sqs.get_queue_url(QueueName=queue.name, QueueOwnerAWSAccountId=queue.location)
            self._urls[key] = response["QueueUrl"]
        return self._urls[key]

    def _metrics(self, name: str, now: float) -> dict[str, float]:
        """Return each metric in its newest whole minute; 0 without data."""
        end = now // _MINUTE_SECONDS * _MINUTE_SECONDS
        response = self.cloudwatch.get_metric_data(
            MetricDataQueries=[
                {
                    "Id": key,
                    "MetricStat": {
                        "Metric": {
                            "Namespace": "AWS/SQS",
                            "MetricName": metric,
                            "Dimensions": [{"Name": "QueueName", "Value": name}],
                        },
                        "Period": _MINUTE_SECONDS,
                        "Stat": statistic,
                    },
                }
                for key, (metric, statistic) in _METRICS.items()
            ],
            StartTime=datetime.fromtimestamp(end - _LOOKBACK_SECONDS, UTC),
            EndTime=datetime.fromtimestamp(end, UTC),
            ScanBy="TimestampDescending",
        )
        values = {result["Id"]: result["Values"] for result in response["MetricDataResults"]}
        return {key: float(values[key][0]) if values.get(key) else 0.0 for key in _METRICS}


def reader(client: Callable[[str], Any]) -> SqsReader:
    """Return the reader; ``client`` returns the boto3 client of a service by its name."""
    return SqsReader(client("sqs"), client("cloudwatch"))
