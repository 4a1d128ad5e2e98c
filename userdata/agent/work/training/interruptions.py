"""Interruption rate of a job, estimated from its history, for the checkpoint interval; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from contracts.jobs.attempt import JobAttempt

MAX_ATTEMPTS: Final = 20
"""Number of the job's latest attempts that are read: older market conditions say little."""
PRIOR_PER_HOUR: Final = {"spot": 0.5}
"""Assumed interruptions per hour without history; Spot as in ``spot_training.interval``."""
DEFAULT_PRIOR_PER_HOUR: Final = 0.05
"""Rate for other purchase options: host faults, and migrations with a failed save. Assumed."""
PRIOR_WEIGHT: Final = 2.0
"""Weight of the prior, as a number of interruptions."""


def per_hour(attempts: Iterable[JobAttempt], instance: str, instance_type: str, market: str) -> float:
    """Return the expected interruptions per hour of an instance like this one.

    ``attempts`` are those before the current one of ``instance``. The rate of all attempts with its purchase
    option is the prior for those of its instance type.
    """
    ordered = sorted(attempts, key=lambda attempt: attempt.token)
    interrupted = dict(
        zip((attempt.token for attempt in ordered), _interrupted(ordered, instance), strict=True)
    )
    same_option = [attempt for attempt in ordered if attempt.purchase_option == market]
    rate = PRIOR_PER_HOUR.get(market, DEFAULT_PRIOR_PER_HOUR)
    for group in (
        same_option,
        [attempt for attempt in same_option if attempt.instance_type == instance_type],
    ):
        hours = sum(max(0.0, attempt.last_seen_at - attempt.began) for attempt in group) / 3600
        rate = (PRIOR_WEIGHT + sum(interrupted[attempt.token] for attempt in group)) / (
            PRIOR_WEIGHT / rate + hours
        )
    return rate


def _interrupted(attempts: Sequence[JobAttempt], next_instance: str) -> list[bool]:
    """Return for each attempt whether it was interrupted.

    ``next_instance`` is the instance of the attempt after the last. An attempt without a recorded end whose
    instance also has the next attempt was not interrupted: its agent restarted.
    """
    next_instances = [*(following.instance for _, following in pairwise(attempts)), next_instance][
        : len(attempts)
    ]
    return [
        attempt.outcome in ("notice", "host fault")
        or (attempt.outcome == "silent" and attempt.instance != following)
        for attempt, following in zip(attempts, next_instances, strict=True)
    ]
