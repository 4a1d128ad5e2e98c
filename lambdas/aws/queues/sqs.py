"""Reads the state of SQS queues from SQS and from their CloudWatch metrics."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from contracts.registry.queue_state import QueueState
from contracts.watched_queue import WatchedQueue
from lambdas.core.queues.history import QueueHistory
from lambdas.core.queues.waiting_age import MAX_LOOKBACK_SECONDS, MINUTE_SECONDS, oldest_waiting

_MAX_DELAY_SECONDS: Final = 3 * MINUTE_SECONDS
"""Maximum age of the newest data point: metrics of SQS are published each minute, with a delay."""
_COMPLETE: Final = "Complete"
"""Source: CloudWatch API reference, ``MetricDataResult``; with another status there are no data."""

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

    SQS has no connections: ``consumers`` is one for each message in flight, and at least 1 after a recent
    receive call, even an empty one. Metrics of a queue that was unused for six hours pause, and resume up to
    15 minutes late: a queue without messages and without any value in hours is idle. Else what has no recent
    value is unknown, never 0.
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
        minutes, is_complete = self._minutes(queue.name, now)
        ready = int(counts["ApproximateNumberOfMessages"])
        in_flight = int(counts["ApproximateNumberOfMessagesNotVisible"])
        is_unused = is_complete and not (ready or in_flight or any(minutes.values()))
        absent = 0.0 if is_unused else None
        newest = {key: _newest(values, now, absent) for key, values in minutes.items()}
        previous = None if history.at is None else (history.at, history.oldest_seconds)
        oldest = oldest_waiting(ready, in_flight, newest["oldest"], minutes["sent"], now, previous)
        calls = [newest[key] for key in ("received", "empty")]
        state = QueueState(
            observed_at=now,
            ready=ready,
            in_flight=in_flight,
            oldest_seconds=oldest,
            publish_rate=_rate(newest["sent"]),
            ack_rate=_rate(newest["deleted"]),
            consumers=max(in_flight, 1) if any(calls) else in_flight or (None if None in calls else 0),
        )
        if oldest is not None:  # else the last known one still bounds the next
            history = replace(history, at=now, oldest_seconds=oldest)
        return state, history

    def _url(self, queue: WatchedQueue) -> str:
        key = queue.location, queue.name
        if key not in self._urls:
            response = self.sqs.get_queue_url(QueueName=queue.name, QueueOwnerAWSAccountId=queue.location)
            self._urls[key] = response["QueueUrl"]
        return self._urls[key]

    def _minutes(self, name: str, now: float) -> tuple[dict[str, dict[float, float]], bool]:
        """Return each metric by the beginning of each whole minute with data; whether all are there."""
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
        minutes: dict[str, dict[float, float]] = {}
        for result in response["MetricDataResults"]:
            if result.get("StatusCode") == _COMPLETE:
                times = (time.timestamp() for time in result["Timestamps"])
                values = zip(times, result["Values"], strict=True)
                minutes[result["Id"]] = {time: float(v) for time, v in values if 0 <= v < math.inf}
        return {key: minutes.get(key, {}) for key in _METRICS}, len(minutes) == len(_METRICS)


def _newest(minutes: dict[float, float], now: float, absent: float | None) -> float | None:
    """Return the value of the newest minute; ``absent`` without a recent one."""
    time = max(minutes, default=0.0)
    return minutes[time] if time >= now - _MAX_DELAY_SECONDS - MINUTE_SECONDS else absent


def _rate(of_minute: float | None) -> float | None:
    return None if of_minute is None else of_minute / MINUTE_SECONDS


def reader(client: Callable[[str], Any]) -> SqsReader:
    """Return the reader; ``client`` returns the boto3 client of a service by its name."""
    return SqsReader(client("sqs"), client("cloudwatch"))
