"""What the rehearsed AWS does to us that AWS does now and then, or in its own time: one switch each.

What AWS always does is no matter of choice: that is put right in ``pulumi_on_moto``. What the market does,
its chances and times, stands in ``market/rules.py``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FaultInjection:
    """One field for each switch; times in seconds of simulated time.

    Attributes:
        hook_at_notice: a group with capacity rebalancing calls the termination hook at a two-minute notice
            (Auto Scaling user guide, "Use Capacity Rebalancing", considerations), so that the member waits in
            ``Terminating:Wait`` while its worker goes on. No deployed group rebalances (ADR 0020).
        fleet_modifying_seconds: a Spot Fleet is ``modifying`` for so long after each modification, shows the
            old target and refuses another (EC2 user guide, "Spot Fleet request states"; 3 s in
            kubernetes-retired/kube-aws#843).
        fleet_says_shortage: a fleet reports lack of spot as an error of the sub-type
            ``spotFleetRequestConfigurationInvalid`` (terraform-provider-aws#26493, c6fc/npk#70).
        instances_lag_seconds: how long DescribeInstances goes on showing what it showed before a change, so
            that a group lists a member that EC2 does not describe yet (EC2 developer guide, "Eventual
            consistency"; no time is given). 0: steps are a minute, and most changes show within seconds.
        groups_lag_seconds: the same of DescribeAutoScalingGroups.
        throttled: the chance in each minute that other tools of the account leave no request tokens to us
            (``pulumi_on_moto.running.throttling``). 0: that is a matter of the account.
        overlap: two copies of the controller run at once: the second begins while the first makes this call
            of AWS (its queue's mapping allows two). None: one after the other.
        cancelled: the chance that a refused launch of a group ends ``Cancelled`` rather than ``Failed``
            (API reference, DescribeScalingActivities: either; no share is given).
        suspends_after_seconds: a group that was refused every launch for so long launches no more, until
            somebody resumes it (Auto Scaling user guide, "Suspend and resume processes": administrative
            suspension, most commonly after 24 hours).
        seed: of the chances.
    """

    hook_at_notice: bool = True
    fleet_modifying_seconds: float = 3.0
    fleet_says_shortage: bool = True
    instances_lag_seconds: float = 0.0
    groups_lag_seconds: float = 0.0
    throttled: float = 0.0
    overlap: int | None = None
    cancelled: float = 0.0
    suspends_after_seconds: float = 86_400.0
    seed: int = 1

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a chance outside 0–1, a negative time or an overlap below 1."""
        for name in ("throttled", "cancelled"):
            if not 0.0 <= (chance := getattr(self, name)) <= 1.0:
                raise ValueError(f"{name} is {chance}, a probability between 0 and 1 is needed")
        for name in (name for name in self.__slots__ if name.endswith("_seconds")):
            if (seconds := getattr(self, name)) < 0:
                raise ValueError(f"{name} is {seconds}, a number ≥ 0 is needed")
        if self.overlap is not None and self.overlap < 1:
            raise ValueError(f"overlap is {self.overlap}, the number of a call from 1 on is needed")

    def happens(self, chance: float, event: str, now: float) -> bool:
        """Draw whether something with this chance happens at a moment, the same in every run."""
        return chance > 0 and random.Random(f"{self.seed} {event} {now}").random() < chance
