"""The source of a service's load, chosen by its settings: its queue, its proxies, or its request log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from contracts import names
from contracts.group.scaling_settings import RequestLogSettings, ScalingSettings
from lambdas.aws.hosts import RegistrySnapshot
from lambdas.core.scaling.log_source import STALE_SECONDS, LogMinute, LogSource
from lambdas.core.scaling.model import POLL_SECONDS, LoadSource
from lambdas.core.scaling.queue_source import QueueSource, http_source

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_cloudwatch.literals import StatisticType
    from mypy_boto3_cloudwatch.type_defs import MetricDataQueryTypeDef

_REQUESTS: Final = "requests"
_MEASURED: Final = "measured"
_SECONDS: Final = "seconds"
_COMPLETE: Final = "Complete"


@dataclass(frozen=True, slots=True)
class LoadReader:
    """Reads the load of a stack's services."""

    stack: str
    cloudwatch: CloudWatchClient

    def source(
        self, group: str, settings: ScalingSettings, registry: RegistrySnapshot, now: float
    ) -> tuple[LoadSource, list[str]]:
        """Return a service's source and read errors, with which its load is unknown."""
        if settings.log is None and registry.has_http:
            return http_source(registry.http), []
        if settings.log is None:
            return QueueSource(registry.queue), []
        try:
            minutes = self._minutes(group, settings.log, now)
        except (BotoCoreError, ClientError) as error:
            return LogSource((), settings.log.counts_ended), [f"request log not readable: {error}"]
        return LogSource(minutes, settings.log.counts_ended), []

    def _minutes(self, group: str, log: RequestLogSettings, now: float) -> tuple[LogMinute, ...]:
        """Return the minutes of which all values are known."""
        values = self._values(group, log, now)
        requests = values[_REQUESTS]
        if log.seconds_per_request is not None:
            stated = log.seconds_per_request
            return tuple(LogMinute(at, n, None, n * stated) for at, n in requests.items())
        return tuple(
            # In a minute of seconds that are 0 the only sample is the default value.
            LogMinute(at, requests[at], measured if seconds else 0.0, seconds * log.unit_seconds)
            for at, seconds in values[_SECONDS].items()
            if at in requests and (measured := values[_MEASURED].get(at)) is not None and seconds >= 0
        )

    def _values(self, group: str, log: RequestLogSettings, now: float) -> dict[str, dict[float, float]]:
        """Return the statistics of the last minutes, each by the end of its minute (epoch seconds).

        ``GetMetricData`` returns no value for a minute without data points; a result that is not complete
        counts as none. Source: CloudWatch API reference, ``MetricDataResult``.
        """
        end = now - now % POLL_SECONDS
        queries = [self._query(group, _REQUESTS, _REQUESTS, "Sum")]
        if log.seconds_per_request is None:
            queries.append(self._query(group, _MEASURED, _SECONDS, "SampleCount"))
            queries.append(self._query(group, _SECONDS, _SECONDS, "Sum"))
        values: dict[str, dict[float, float]] = {_REQUESTS: {}, _MEASURED: {}, _SECONDS: {}}
        # A few values of three metrics fit on a page.
        response = self.cloudwatch.get_metric_data(
            MetricDataQueries=queries,
            StartTime=datetime.fromtimestamp(end - STALE_SECONDS - POLL_SECONDS, UTC),
            EndTime=datetime.fromtimestamp(end, UTC),
        )
        for result in response["MetricDataResults"]:
            if result["StatusCode"] == _COMPLETE:
                times = (at.timestamp() + POLL_SECONDS for at in result["Timestamps"])
                values[result["Id"]] = dict(zip(times, result["Values"], strict=True))
        return values

    def _query(self, group: str, query: str, metric: str, statistic: StatisticType) -> MetricDataQueryTypeDef:
        return {
            "Id": query,
            "MetricStat": {
                "Metric": {
                    "Namespace": names.REQUEST_LOG_NAMESPACE,
                    "MetricName": names.request_metric(self.stack, group, metric),
                },
                "Period": int(POLL_SECONDS),
                "Stat": statistic,
            },
        }
