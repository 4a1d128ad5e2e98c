"""The scaler's observation of a service, from its load source, its hosts and their workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from contracts import names
from contracts.registry.item import Worker
from lambdas.core.health.model import WorkerHost
from lambdas.core.scaling.model import LoadObservation, LoadSource
from lambdas.core.scaling.throughput import Throughput


def observe(
    now: float,
    target: int,
    source: LoadSource,
    hosts: Iterable[WorkerHost],
    types: Mapping[str, str],
    boot_seconds: float,
    throughput: Throughput,
    on_demand: int = 0,
) -> LoadObservation:
    """Return the observation of a service.

    On-premises workers count as a separate type: the controller subtracts them from the capacity on AWS.
    ``types`` are instance types by host; ``on_demand`` is how many of ``target`` workers the group's
    configured mix buys as On-Demand.
    """
    hosts_seen = tuple(hosts)
    ready: dict[str, list[Worker]] = {}
    booting, booted_seconds = 0, 0.0
    for host in hosts_seen:
        serving = [w for w in host.workers if w.is_fresh(now) and w.state == "ready" and w.deadline is None]
        if host.exemption_reason:
            continue
        ready.setdefault(_host_type(host, types), []).extend(serving)
        if host.launched_at is not None and now - host.launched_at < 2 * boot_seconds:
            missing = max(0, host.expected_workers - len(serving))
            booting += missing
            booted_seconds += missing * max(0.0, now - host.launched_at)
    return LoadObservation(
        now,
        target,
        source.load(now),
        {name: len(workers) for name, workers in ready.items() if workers},
        booting,
        dict(source.work_done(now, ready, throughput)),
        boot_seconds,
        is_spot_scarce=_is_spot_scarce(hosts_seen, on_demand),
        unknown=source.unknown,
        batches=dict(source.batches(now, ready)),
        booting_seconds=booted_seconds / booting if booting else None,
    )


def _is_spot_scarce(hosts: Iterable[WorkerHost], on_demand: int) -> bool:
    """Return whether the group has more On-Demand instances than its configured mix requires."""
    on_demand_workers = [
        host.expected_workers
        for host in hosts
        if not (host.is_on_premises or host.is_spot or host.exemption_reason)
    ]
    return (
        sum(on_demand_workers) - max(on_demand_workers, default=0) >= on_demand
        if on_demand_workers
        else False
    )


def _host_type(host: WorkerHost, types: Mapping[str, str]) -> str:
    return names.ORIGIN_ON_PREMISES if host.is_on_premises else types.get(host.id, "")
