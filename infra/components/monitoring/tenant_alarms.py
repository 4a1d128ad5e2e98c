"""Alarms of the tenants of a shared host."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from contracts import names
from infra.components.monitoring.alarm_spec import FIVE_MINUTES, AlarmSpec, Condition, MetricSource


def alarms(stack: str, host: str, tenants: Collection[str]) -> Iterator[AlarmSpec]:
    """Yield the alarms of a host's tenants: a container restarts repeatedly; one is missing or not as listed.

    A missing host has the alarm ``shortage`` of its group.
    """
    of_host = {"group": host, "stack": stack}
    yield AlarmSpec(
        f"{host}-restarting",
        f"A tenant's container on {host} restarts repeatedly; the log of the instances says whose, and its "
        "output is on its volume.",
        MetricSource(names.INSTANCE_NAMESPACE, of_host),
        names.METRIC_TENANT_RESTARTS,
        Condition("Sum", 3, 3, 2, FIVE_MINUTES),
    )
    for tenant in tenants:
        yield AlarmSpec(
            f"{host}-{tenant}-waiting",
            f"{tenant} on {host} has not run as listed for 20 minutes; `gpu-spot status` has the reason.",
            MetricSource(names.INSTANCE_NAMESPACE, {**of_host, names.TENANT: tenant}),
            names.METRIC_TENANT_WAITING,
            Condition("Minimum", 1, 4, 4, FIVE_MINUTES),
        )
