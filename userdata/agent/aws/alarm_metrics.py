"""Metrics for the stack's alarms, sent at once and without the CloudWatch agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contracts.names import INSTANCE_NAMESPACE
from userdata.agent.aws.clients import AwsError, aws_errors
from userdata.agent.machine import log

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient


class AlarmMetrics:
    """Puts counts in a group's metrics directly: on a faulty host the CloudWatch agent may not run."""

    def __init__(self, cloudwatch: CloudWatchClient, stack: str, group: str) -> None:
        self._cloudwatch = cloudwatch
        self._dimensions = {"stack": stack, "group": group}

    def increment(self, metric: str) -> None:
        """Add 1 to ``metric``. An error is only logged: the caller has to continue."""
        dimensions = [{"Name": k, "Value": v} for k, v in self._dimensions.items()]
        datum: Any = {"MetricName": metric, "Dimensions": dimensions, "Value": 1.0, "Unit": "Count"}
        try:
            with aws_errors(metric):
                self._cloudwatch.put_metric_data(Namespace=INSTANCE_NAMESPACE, MetricData=[datum])
        except AwsError as error:
            log.error("alarm metric not sent", metric=metric, error=str(error))
