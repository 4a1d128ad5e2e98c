"""Reads what tenants used and what their host cost from CloudWatch, by hour."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from contracts import names
from gpu_spot.tenants.bill import HostHour, Resources, TenantUse

_HOUR: Final = 3600
RETENTION: Final = timedelta(days=455)
"""Age of the oldest hourly values. Source: CloudWatch guide, "Metrics retention"."""
_SAMPLES_PER_HOUR: Final = 60
"""The controller reports each minute, and more often at events."""

_TENANT_METRICS: Final = (
    names.METRIC_TENANT_GPU_RESERVED,
    names.METRIC_TENANT_CPU_RESERVED,
    names.METRIC_TENANT_CPU_SECONDS,
    names.METRIC_TENANT_CPU_BORROWED,
    names.METRIC_TENANT_CPU_LENT,
    names.METRIC_TENANT_MEMORY_RESERVED,
)
"""In the order of the fields of `TenantUse`."""
_HOST_METRICS: Final = (names.METRIC_HOST_GPU, names.METRIC_HOST_CPU, names.METRIC_HOST_MEMORY)
"""In the order of the fields of `Resources`."""
_COST_STATISTICS: Final = ("Average", "SampleCount")

_Key = tuple[str, str, str]
"""Tenant (empty: the host), metric, statistic."""


class BillError(ValueError):
    """A bill cannot be read; one line with the reason."""


@dataclass(frozen=True)
class Period:
    """A month (``YYYY-MM``, UTC), from ``start`` until ``end``, the last full hour of a month in progress."""

    month: str
    start: datetime
    end: datetime


def period_of(month: str, now: datetime) -> Period:
    """Return the period of a month; raises ``BillError`` for one that is not over for an hour, or too old."""
    if not re.fullmatch(r"[0-9]{4}-(0[1-9]|1[0-2])", month):
        raise BillError(f"--month is {month!r}, allowed: a month such as {now:%Y-%m}")
    start = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
    next_month = (start + timedelta(days=32)).replace(day=1)
    end = min(next_month, now.replace(minute=0, second=0, microsecond=0))
    if end <= start or start < now - RETENTION:
        oldest = now - RETENTION + timedelta(days=31)
        raise BillError(f"--month is {month!r}, allowed: {oldest:%Y-%m} to {now:%Y-%m}")
    return Period(month, start, end)


class UsageReader:
    """Reads the hours of one stack's shared hosts; ``cloudwatch`` is the boto3 client."""

    def __init__(self, cloudwatch: Any, stack: str) -> None:
        self._cloudwatch = cloudwatch
        self._stack = stack

    def tenants(self, host: str) -> set[str]:
        """Return the tenants that a host had in the last two weeks (CloudWatch API, ListMetrics)."""
        pages = self._cloudwatch.get_paginator("list_metrics").paginate(
            Namespace=names.INSTANCE_NAMESPACE,
            MetricName=names.METRIC_TENANT_CPU_RESERVED,
            Dimensions=_pairs({"group": host, "stack": self._stack}),
        )
        return {
            dimension["Value"]
            for page in pages
            for metric in page["Metrics"]
            for dimension in metric["Dimensions"]
            if dimension["Name"] == names.TENANT
        }

    def hours(self, host: str, tenants: Collection[str], period: Period) -> list[HostHour]:
        """Return the hours of a period of which anything is known.

        Calls: one GetMetricData for each 100,800 values; 16 tenants have 75,000 in a month. Raises
        ``BillError`` if CloudWatch does not answer in full.
        """
        keys = [("", metric, "Sum") for metric in _HOST_METRICS]
        keys += [("", names.METRIC_HOURLY_COST, statistic) for statistic in _COST_STATISTICS]
        keys += [(tenant, metric, "Sum") for tenant in sorted(tenants) for metric in _TENANT_METRICS]
        by_hour: dict[datetime, dict[_Key, float]] = defaultdict(dict)
        for key, at, value in self._read(host, keys, period):
            by_hour[at][key] = value
        return [_hour(values, tenants) for _, values in sorted(by_hour.items())]

    def _read(self, host: str, keys: list[_Key], period: Period) -> Iterator[tuple[_Key, datetime, float]]:
        queries = [
            {"Id": f"q{number}", "MetricStat": self._statistic(host, key)} for number, key in enumerate(keys)
        ]
        pages = self._cloudwatch.get_paginator("get_metric_data").paginate(
            MetricDataQueries=queries, StartTime=period.start, EndTime=period.end
        )
        status: dict[str, str] = {}
        for page in pages:
            for result in page["MetricDataResults"]:
                status[result["Id"]] = result["StatusCode"]
                key = keys[int(result["Id"][1:])]
                for at, value in zip(result["Timestamps"], result["Values"], strict=True):
                    yield key, at, value
        incomplete = sorted({state for state in status.values() if state != "Complete"})
        if incomplete or len(status) < len(keys):
            raise BillError(
                f"metrics of {host!r}: CloudWatch returned {', '.join(incomplete) or 'too few'}, "
                "allowed: Complete; run the command again"
            )

    def _statistic(self, host: str, key: _Key) -> dict[str, Any]:
        tenant, metric, statistic = key
        dimensions, namespace = {"group": host, "stack": self._stack}, names.INSTANCE_NAMESPACE
        if metric == names.METRIC_HOURLY_COST:
            dimensions["service"], namespace = names.SERVICE_CONTROLLER, names.METRIC_NAMESPACE
        elif tenant:
            dimensions[names.TENANT] = tenant
        described = {"Namespace": namespace, "MetricName": metric, "Dimensions": _pairs(dimensions)}
        return {"Metric": described, "Period": _HOUR, "Stat": statistic}


def _hour(values: Mapping[_Key, float], tenants: Collection[str]) -> HostHour:
    uses = {}
    for tenant in tenants:
        amounts = [values.get((tenant, metric, "Sum"), 0.0) for metric in _TENANT_METRICS]
        if any(amounts):
            uses[tenant] = TenantUse(*amounts)
    average, samples = (
        values.get(("", names.METRIC_HOURLY_COST, statistic), 0.0) for statistic in _COST_STATISTICS
    )
    priced = min(samples / _SAMPLES_PER_HOUR, 1.0)
    capacity = Resources(*(values.get(("", metric, "Sum"), 0.0) for metric in _HOST_METRICS))
    return HostHour(uses, capacity, average * priced, priced)


def _pairs(dimensions: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Name": name, "Value": value} for name, value in dimensions.items()]
