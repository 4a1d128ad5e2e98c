"""How often a job is interrupted, by its own history: what a script needs to choose when to save. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from contracts.jobs.attempt import JobAttempt

LOOKED_AT: Final = 20
"""So many of the job's last stints count: a market of months ago says little."""
PRIOR: Final = {"spot": 0.5}
"""Interruptions an hour of a market that nobody has seen: those of spot as in ``spot_training.interval``."""
PRIOR_OTHERS: Final = 0.05
"""The same of what AWS does not take back: hosts that fail, and hand-overs in which a save fails. Assumed."""
PRIOR_LOSSES: Final = 2.0
"""How many interruptions the prior is worth against those that were met."""


def per_hour(before: Iterable[JobAttempt], instance: str, instance_type: str, market: str) -> float:
    """Return how often an hour an instance like this one is expected to be lost.

    ``before`` are the stints before that of ``instance``. All those of its market make the prior of those of
    its type.
    """
    stints = sorted(before, key=lambda one: one.token)
    lost = dict(zip((one.token for one in stints), _interrupted(stints, instance), strict=True))
    alike = [one for one in stints if one.market == market]
    rate = PRIOR.get(market, PRIOR_OTHERS)
    for these in (alike, [one for one in alike if one.instance_type == instance_type]):
        hours = sum(max(0.0, one.seen - one.began) for one in these) / 3600
        rate = (PRIOR_LOSSES + sum(lost[one.token] for one in these)) / (PRIOR_LOSSES / rate + hours)
    return rate


def _interrupted(stints: Sequence[JobAttempt], then: str) -> list[bool]:
    """Return of each stint whether it was interrupted; ``then`` is the instance of the one after the last.

    Who says nothing of an end and comes again was not lost: its agent began anew.
    """
    after = [*(other.instance for _, other in pairwise(stints)), then][: len(stints)]
    return [
        one.outcome in ("notice", "host fault") or (one.outcome == "silent" and one.instance != other)
        for one, other in zip(stints, after, strict=True)
    ]
