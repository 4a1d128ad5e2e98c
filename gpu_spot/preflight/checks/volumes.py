"""Volumes of earlier trainings that belong to no job.

The first boot of a job without a volume stops if there is one (``userdata.agent.storage.volume.plan``).
"""

from __future__ import annotations

from collections.abc import Iterator

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.stack import Stack
from gpu_spot.preflight.unclaimed_volumes import read_named, unclaimed


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Check that no job would start next to a volume that it may be meant to have."""
    jobs = [
        job.name
        for job in stack.settings.jobs
        if job.has_volume and job.prepare is None and job.access_point is None
    ]
    stored = read_named(account.clients) if jobs else ()
    new = [job for job in jobs if not any(item.belongs_to(stack.name, job) for item in stored)]
    for volume in unclaimed(stored) if new else ():
        yield CheckResult(
            volume.id,
            "failure",
            f"{volume} belongs to no job, and {', '.join(new)} has no volume: its first boot would fail",
            f"gpu-spot jobs adopt-volume {new[0]} {volume.id} --stack {stack.name}, or --blank for the id",
        )
