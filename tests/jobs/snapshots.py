"""Job snapshots for tests: one revision, observed at noon."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from contracts.jobs.attempt import JobAttempt
from contracts.jobs.item import JobItem
from contracts.registry.item import Worker
from gpu_spot.jobs.snapshot import JobHost, JobSnapshot

NOW: Final = 1_767_614_400.0
RUN: Final = "a" * 40


def row(**more: Any) -> JobItem:
    return JobItem(**{"state": "running", "revision": RUN, **more})


def holding(instance: str, **more: Any) -> JobItem:
    return row(holder=instance, lease_expires_at=NOW + 60, **more)


def worker(instance: str, state: Any = "ready", *, ago: float = 5.0, deadline: float | None = None) -> Worker:
    return Worker("resnet", instance, 0, NOW - 600, NOW - ago, state, deadline)


def host(instance: str, *, is_live: bool = True, zone: str = "us-west-2a", market: str = "spot") -> JobHost:
    return JobHost(instance, "g6.xlarge", zone, market, NOW - 900, is_live)


def job_attempt(token: int, instance: str, begin: float, last_seen: float, **more: Any) -> JobAttempt:
    """An instance that ran the job from ``begin`` to ``last_seen`` seconds before noon."""
    result = JobAttempt(
        token=token,
        revision=RUN,
        instance=instance,
        instance_type="g6.xlarge",
        zone="us-west-2a",
        purchase_option="spot",
        group_role="primary",
        launched=NOW - begin - 200,
        began=NOW - begin - 20,
        last_seen_at=NOW - last_seen,
        started=NOW - begin,
        restarted=NOW - begin,
        starts=1,
        stopped=NOW - last_seen,
        checkpoint=NOW - last_seen,
    )
    return replace(result, **more)


def job(**more: Any) -> JobSnapshot:
    return JobSnapshot(**{"name": "resnet", "now": NOW, "run": RUN, "finished": "none", "target": 1, **more})
