"""Observations to judge: a job of one revision, seen at noon."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from contracts.jobs.attempt import JobAttempt
from contracts.jobs.item import JobItem
from contracts.registry.item import Worker
from gpu_spot.jobs.observed import JobHost, JobObserved

NOW: Final = 1_767_614_400.0
RUN: Final = "a" * 40


def row(**more: Any) -> JobItem:
    return JobItem(**{"state": "running", "revision": RUN, **more})


def holding(instance: str, **more: Any) -> JobItem:
    return row(holder=instance, lease_until=NOW + 60, **more)


def worker(instance: str, state: Any = "ready", *, ago: float = 5.0, deadline: float | None = None) -> Worker:
    return Worker("resnet", instance, 0, NOW - 600, NOW - ago, state, deadline)


def host(instance: str, *, is_live: bool = True, zone: str = "us-west-2a", market: str = "spot") -> JobHost:
    return JobHost(instance, "g6.xlarge", zone, market, NOW - 900, is_live)


def stint(token: int, instance: str, begin: float, until: float, **more: Any) -> JobAttempt:
    """An instance that began to run the job so many seconds before noon, and saw it end so many before."""
    told = JobAttempt(
        token=token,
        revision=RUN,
        instance=instance,
        instance_type="g6.xlarge",
        zone="us-west-2a",
        market="spot",
        side="primary",
        launched=NOW - begin - 200,
        began=NOW - begin - 20,
        seen=NOW - until,
        started=NOW - begin,
        restarted=NOW - begin,
        starts=1,
        stopped=NOW - until,
        checkpoint=NOW - until,
    )
    return replace(told, **more)


def job(**more: Any) -> JobObserved:
    return JobObserved(**{"name": "resnet", "now": NOW, "run": RUN, "finished": "none", "target": 1, **more})
