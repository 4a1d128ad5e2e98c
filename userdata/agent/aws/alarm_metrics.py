"""Ring: a metric that an alarm of the stack listens to, sent at once and by nobody else's hands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contracts.names import INSTANCE_NAMESPACE
from userdata.agent.aws.clients import AwsError, asking
from userdata.agent.machine import log

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient


class Bell:
    """Counts one in a metric of a group. Not through the CloudWatch agent: on a sick host it may be gone."""

    def __init__(self, cloudwatch: CloudWatchClient, stack: str, group: str) -> None:
        self._cloudwatch = cloudwatch
        self._dimensions = {"stack": stack, "group": group}

    def ring(self, metric: str) -> None:
        """Count one in ``metric``; what cannot be sent is logged: whoever rings has more to do."""
        dimensions = [{"Name": k, "Value": v} for k, v in self._dimensions.items()]
        datum: Any = {"MetricName": metric, "Dimensions": dimensions, "Value": 1.0, "Unit": "Count"}
        try:
            with asking(metric):
                self._cloudwatch.put_metric_data(Namespace=INSTANCE_NAMESPACE, MetricData=[datum])
        except AwsError as error:
            log.error("nobody hears the alarm", metric=metric, error=str(error))
