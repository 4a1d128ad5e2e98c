"""What wakes a person about the tenants of a shared host."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from contracts import names
from infra.components.monitoring.alarm_spec import FIVE_MINUTES, AlarmSpec


def alarms(stack: str, host: str, tenants: Collection[str]) -> Iterator[AlarmSpec]:
    """Yield the alarms of each tenant: it has no container anywhere, or one that does not stay up.

    What is counted comes from the host once a minute. A host that is away for so long is as bad for a tenant
    as a container that is, so silence is what rings.
    """
    for tenant in tenants:
        of = {"group": host, "stack": stack, names.TENANT: tenant}
        yield AlarmSpec(
            f"{host}-{tenant}-missing",
            f"{tenant} has not run on {host} for twenty minutes: there is no host, or image, volume or "
            "the list is wrong; the log of the instances says which.",
            names.INSTANCE_NAMESPACE,
            names.METRIC_TENANT_CPU_SECONDS,
            of,
            "Maximum",
            at_least=0,
            period=FIVE_MINUTES,
            periods=4,
            needed=4,
            silence="breaching",
            below=True,
        )
        yield AlarmSpec(
            f"{host}-{tenant}-restarting",
            f"The container of {tenant} on {host} ends again and again; what it wrote lies on its volume.",
            names.INSTANCE_NAMESPACE,
            names.METRIC_TENANT_RESTARTS,
            of,
            "Sum",
            at_least=3,
            period=FIVE_MINUTES,
            periods=3,
            needed=2,
        )
