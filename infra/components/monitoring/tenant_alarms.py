"""Alarms of the tenants of a shared host."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from contracts import names
from infra.components.monitoring.alarm_spec import FIVE_MINUTES, AlarmSpec


def alarms(stack: str, host: str, tenants: Collection[str]) -> Iterator[AlarmSpec]:
    """Yield the alarms of each tenant: its container is missing, restarts repeatedly, or is not as listed.

    The host emits the metrics once a minute. A missing host is as bad for a tenant as a missing container,
    so missing data is what breaches.
    """
    for tenant in tenants:
        of = {"group": host, "stack": stack, names.TENANT: tenant}
        yield AlarmSpec(
            f"{host}-{tenant}-missing",
            f"The container of {tenant} on {host} has not run for 20 minutes: the host is missing, or the "
            "tenant's image, volume or configuration is wrong. See the log of the instances.",
            names.INSTANCE_NAMESPACE,
            names.METRIC_TENANT_CPU_SECONDS,
            of,
            "Maximum",
            threshold=0,
            period_seconds=FIVE_MINUTES,
            periods=4,
            datapoints=4,
            treat_missing_data="breaching",
            below=True,
        )
        yield AlarmSpec(
            f"{host}-{tenant}-restarting",
            f"The container of {tenant} on {host} restarts repeatedly; its output is on its volume.",
            names.INSTANCE_NAMESPACE,
            names.METRIC_TENANT_RESTARTS,
            of,
            "Sum",
            threshold=3,
            period_seconds=FIVE_MINUTES,
            periods=3,
            datapoints=2,
        )
        yield AlarmSpec(
            f"{host}-{tenant}-waiting",
            f"{tenant} on {host} has not run as listed for 20 minutes; `gpu-spot status` has the reason.",
            names.INSTANCE_NAMESPACE,
            names.METRIC_TENANT_WAITING,
            of,
            "Minimum",
            threshold=1,
            period_seconds=FIVE_MINUTES,
            periods=4,
            datapoints=4,
        )
