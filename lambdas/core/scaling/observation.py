"""The scaler's observation of a service, from its hosts and their workers' reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from contracts import names
from contracts.registry.item import Worker
from contracts.registry.queue_state import QueueState
from contracts.registry.worker_report import WorkerReport
from lambdas.core.health.model import WorkerHost
from lambdas.core.scaling.model import POLL_SECONDS, LoadObservation, WorkDone
from lambdas.core.scaling.throughput import Throughput

SATURATED_SECONDS: Final = 300.0
"""If the oldest request has waited this long, workers were busy for the whole window of their rate."""
_MAX_REPORT_AGE_SECONDS: Final = 180.0
"""Workers report every few seconds; an older report is ignored."""
_MIN_GPU_USE_PERCENT: Final = 5.0
"""NVML reports whole percents of short samples; lower values are too coarse."""


def observe(
    now: float,
    target: int,
    queue: QueueState | None,
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
    booting = 0
    for host in hosts_seen:
        serving = [w for w in host.workers if w.is_fresh(now) and w.state == "ready" and w.deadline is None]
        if host.exemption_reason:
            continue
        ready.setdefault(_host_type(host, types), []).extend(serving)
        if host.launched_at is not None and now - host.launched_at < 2 * boot_seconds:
            booting += max(0, host.expected_workers - len(serving))
    return LoadObservation(
        now,
        target,
        queue,
        {name: len(workers) for name, workers in ready.items() if workers},
        booting,
        dict(_work_done(now, queue, ready, throughput)),
        boot_seconds,
        is_spot_scarce=_is_spot_scarce(hosts_seen, on_demand),
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


def _work_done(
    now: float, queue: QueueState | None, ready: Mapping[str, list[Worker]], throughput: Throughput
) -> Iterator[tuple[str, WorkDone]]:
    """Yield the completed work of the last minute by instance type.

    If the oldest request has waited for `SATURATED_SECONDS`, all workers were busy and their rate is their
    capacity. Else the workers that report their busy share count.
    """
    oldest_seconds = (
        queue.oldest_seconds if queue is not None and queue.ready > 0 and queue.is_fresh(now) else 0.0
    )
    for name, workers in ready.items():
        reports = [
            w.report
            for w in workers
            if w.report is not None and abs(now - w.report.reported_at) < _MAX_REPORT_AGE_SECONDS
        ]
        busy_shares = [(report.rate, report.busy) for report in reports if report.busy is not None]
        if busy_shares and oldest_seconds < SATURATED_SECONDS:
            work = _sum_work(busy_shares)
        else:
            work = _estimate_work(reports, oldest_seconds, throughput.rate_of(name))
        if work.requests > 0 and work.busy_seconds > 0:
            yield name, work


def _estimate_work(
    reports: Sequence[WorkerReport], oldest_seconds: float, known_rate: float | None
) -> WorkDone:
    """Estimate the work of workers that report their rate, but not their busy share.

    Their capacity is at least ``known_rate``, measured before; without it, the GPU utilization is the first
    estimate of the busy share.
    """
    if known_rate is None and oldest_seconds < POLL_SECONDS:
        shares = (
            (report.rate, report.gpu_use)
            for report in reports
            if report.gpu_use is not None and report.gpu_use >= _MIN_GPU_USE_PERCENT
        )
        return _sum_work([(rate, percent / 100) for rate, percent in shares])
    work = _sum_work([(report.rate, 1.0) for report in reports])
    if known_rate is not None and oldest_seconds < SATURATED_SECONDS:
        return WorkDone(work.requests, min(work.busy_seconds, work.requests / known_rate))
    return work


def _sum_work(pairs: Iterable[tuple[float, float]]) -> WorkDone:
    """Return the work of one minute from pairs of rate and busy share."""
    values = tuple(pairs)
    return WorkDone(
        POLL_SECONDS * sum(rate for rate, _ in values), POLL_SECONDS * sum(share for _, share in values)
    )
