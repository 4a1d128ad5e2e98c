"""Reads the state of SQS queues from SQS and from their CloudWatch metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from contracts.registry.queue_state import QueueState
from contracts.watched_queue import WatchedQueue
from lambdas.core.queues.history import QueueHistory
from lambdas.core.queues.waiting_age import MAX_LOOKBACK_SECONDS, MINUTE_SECONDS, oldest_waiting

_MAX_DELAY_SECONDS: Final = 5 * MINUTE_SECONDS
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
        """Return the queue's state, and the history with the oldest message's age. Raises errors of AWS."""
        counts = self.sqs.get_queue_attributes(
            QueueUrl=self._url(queue),
            # Without delayed messages, which no worker can receive yet.
            AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
        )["Attributes"]
        minutes = self._minutes(queue.name, now)
        newest = {key: _newest(values, now) for key, values in minutes.items()}
        ready = int(counts["ApproximateNumberOfMessages"])
        in_flight = int(counts["ApproximateNumberOfMessagesNotVisible"])
        previous = None if history.at is None else (history.at, history.oldest_seconds)
        oldest = oldest_waiting(ready, in_flight, newest["oldest"], minutes["sent"], now, previous)
        state = QueueState(
            observed_at=now,
            ready=ready,
            in_flight=in_flight,
            oldest_seconds=oldest,
            publish_rate=newest["sent"] / MINUTE_SECONDS,
            ack_rate=newest["deleted"] / MINUTE_SECONDS,
            consumers=int(newest["received"] + newest["empty"] > 0),
        )
        return state, replace(history, at=now, oldest_seconds=oldest)

    def _url(self, queue: WatchedQueue) -> str:
        key = queue.location, queue.name
        if key not in self._urls:
            response = self.sqs.get_queue_url(QueueName=queue.name, QueueOwnerAWSAccountId=queue.location)
            self._urls[key] = response["QueueUrl"]
        return self._urls[key]

    def _minutes(self, name: str, now: float) -> dict[str, dict[float, float]]:
        """Return each metric in each whole minute with data, by the minute's beginning."""
        end = now // MINUTE_SECONDS * MINUTE_SECONDS
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
                        "Period": MINUTE_SECONDS,
                        "Stat": statistic,
                    },
                }
                for key, (metric, statistic) in _METRICS.items()
            ],
            StartTime=datetime.fromtimestamp(end - MAX_LOOKBACK_SECONDS, UTC),
            EndTime=datetime.fromtimestamp(end, UTC),
            ScanBy="TimestampDescending",
        )
        minutes: dict[str, dict[float, float]] = {key: {} for key in _METRICS}
        for result in response["MetricDataResults"]:
            times = (time.timestamp() for time in result["Timestamps"])
            minutes[result["Id"]] = {time: float(v) for time, v in zip(times, result["Values"], strict=True)}
        return minutes


def _newest(minutes: dict[float, float], now: float) -> float:
    """Return the value of the newest minute; 0 without a recent one."""
    time = max(minutes, default=0.0)
    return minutes[time] if time >= now - _MAX_DELAY_SECONDS - MINUTE_SECONDS else 0.0


def reader(client: Callable[[str], Any]) -> SqsReader:
    """Return the reader; ``client`` returns the boto3 client of a service by its name."""
    return SqsReader(client("sqs"), client("cloudwatch"))
