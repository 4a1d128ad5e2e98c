"""Alarms of the tenants of a shared host."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from contracts import names
from infra.components.monitoring.alarm_spec import FIVE_MINUTES, AlarmSpec, Condition, MetricSource


def alarms(stack: str, host: str, tenants: Collection[str]) -> Iterator[AlarmSpec]:
    """Yield the alarms of each tenant: its container is missing, restarts repeatedly, or is not as listed.

    The host emits the metrics once a minute. A missing host is as bad for a tenant as a missing container,
    so missing data is what breaches.
    """
    for tenant in tenants:
        dimensions = {"group": host, "stack": stack, names.TENANT: tenant}
        for alarm, metric, condition, description in (
            (
                "missing",
                names.METRIC_TENANT_CPU_SECONDS,
                Condition("Maximum", 0, 4, 4, FIVE_MINUTES, "breaching", below=True),
                f"The container of {tenant} on {host} has not run for 20 minutes: the host is missing, or "
                "the tenant's image, volume or configuration is wrong. See the log of the instances.",
            ),
            (
                "restarting",
                names.METRIC_TENANT_RESTARTS,
                Condition("Sum", 3, 3, 2, FIVE_MINUTES),
                f"The container of {tenant} on {host} restarts repeatedly; its output is on its volume.",
            ),
            (
                "waiting",
                names.METRIC_TENANT_WAITING,
                Condition("Minimum", 1, 4, 4, FIVE_MINUTES),
                f"{tenant} on {host} has not run as listed for 20 minutes; `gpu-spot status` has the reason.",
            ),
        ):
            metrics = MetricSource(names.INSTANCE_NAMESPACE, dimensions)
            yield AlarmSpec(f"{host}-{tenant}-{alarm}", description, metrics, metric, condition)
