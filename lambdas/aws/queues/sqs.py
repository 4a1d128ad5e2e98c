"""How a queue of SQS stands, from SQS and from what it tells CloudWatch each minute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from contracts.registry.queue_state import Backlog
from contracts.watched_queue import WatchedQueue
from lambdas.core.queues.history import QueueHistory

_MINUTE: Final = 60
_BACK: Final = 5 * _MINUTE
"""How far back the newest minute may lie: metrics of SQS come a little late."""

# SQS guide, "Available CloudWatch metrics for Amazon SQS".
_METRICS: Final = {
    "oldest": ("ApproximateAgeOfOldestMessage", "Maximum"),
    "sent": ("NumberOfMessagesSent", "Sum"),
    "deleted": ("NumberOfMessagesDeleted", "Sum"),
    "received": ("NumberOfMessagesReceived", "Sum"),
    "empty": ("NumberOfEmptyReceives", "Sum"),
}


@dataclass(frozen=True, slots=True)
class SqsReader:
    """Reads queues of SQS; the place of one is the account that it is in.

    SQS knows no connections: ``readers`` is 1 if somebody has received of late, were it nothing, else 0.
    Metrics of a queue that nobody has used for six hours pause, and begin again up to 15 minutes late.
    """

    sqs: Any
    cloudwatch: Any
    _urls: dict[tuple[str, str], str] = field(default_factory=dict)

    def look(
        self, queue: WatchedQueue, past: QueueHistory, at: float, seconds: float
    ) -> tuple[Backlog | None, QueueHistory]:
        """Return how a queue stands; the history is not needed. Raises what AWS raises."""
        counts = self.sqs.get_queue_attributes(
            QueueUrl=self._url(queue),
            # Not the delayed ones: no worker can take them yet, so they make nobody idle.
            AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
        )["Attributes"]
        told = self._told(queue.name, at)
        ready = int(counts["ApproximateNumberOfMessages"])
        backlog = Backlog(
            at=at,
            ready=ready,
            taken=int(counts["ApproximateNumberOfMessagesNotVisible"]),
            # SQS means what is with workers, too; who waits for nothing does not wait.
            oldest=told["oldest"] if ready else 0.0,
            arriving=told["sent"] / _MINUTE,
            leaving=told["deleted"] / _MINUTE,
            readers=int(told["received"] + told["empty"] > 0),
        )
        return backlog, past

    def _url(self, queue: WatchedQueue) -> str:
        key = queue.place, queue.name
        if key not in self._urls:
            answer = self.sqs.get_queue_url(QueueName=queue.name, QueueOwnerAWSAccountId=queue.place)
            self._urls[key] = answer["QueueUrl"]
        return self._urls[key]

    def _told(self, name: str, at: float) -> dict[str, float]:
        """Return each metric in the newest whole minute that it has; 0 without any."""
        end = at // _MINUTE * _MINUTE
        answer = self.cloudwatch.get_metric_data(
            MetricDataQueries=[
                {
                    "Id": key,
                    "MetricStat": {
                        "Metric": {
                            "Namespace": "AWS/SQS",
                            "MetricName": metric,
                            "Dimensions": [{"Name": "QueueName", "Value": name}],
                        },
                        "Period": _MINUTE,
                        "Stat": statistic,
                    },
                }
                for key, (metric, statistic) in _METRICS.items()
            ],
            StartTime=datetime.fromtimestamp(end - _BACK, UTC),
            EndTime=datetime.fromtimestamp(end, UTC),
            ScanBy="TimestampDescending",
        )
        found = {one["Id"]: one["Values"] for one in answer["MetricDataResults"]}
        return {key: float(found[key][0]) if found.get(key) else 0.0 for key in _METRICS}


def reader(client: Callable[[str], Any]) -> SqsReader:
    """Return the reader; ``client`` returns the boto3 client of a service by its name."""
    return SqsReader(client("sqs"), client("cloudwatch"))
