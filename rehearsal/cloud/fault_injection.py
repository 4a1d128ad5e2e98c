"""Faults and delays of AWS that a rehearsal can inject, one switch each.

Behaviour that AWS always shows is implemented in ``pulumi_on_moto``; probabilities and times of the Spot
market are in ``market/rules.py``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FaultInjection:
    """Switches of the injected faults; times in simulated seconds.

    Attributes:
        hook_at_notice: a group with capacity rebalancing calls the termination hook at a two-minute notice
            (Auto Scaling user guide, "Use Capacity Rebalancing", considerations), so the member waits in
            ``Terminating:Wait`` while its worker continues. No deployed group rebalances (ADR 0020).
        fleet_modifying_seconds: how long a Spot Fleet is ``modifying`` after a modification: it shows the
            old target and rejects another modification (EC2 user guide, "Spot Fleet request states"; 3 s in
            kubernetes-retired/kube-aws#843).
        fleet_says_shortage: a fleet reports missing Spot capacity as an error of the sub-type
            ``spotFleetRequestConfigurationInvalid`` (terraform-provider-aws#26493, c6fc/npk#70).
        instances_lag_seconds: how long DescribeInstances shows the state before a change; a group can then
            list a member that EC2 does not describe yet (EC2 developer guide, "Eventual
            consistency"; no time is given). 0: steps are a minute, and most changes show within seconds.
        groups_lag_seconds: the same for DescribeAutoScalingGroups.
        throttled: the probability per minute that other clients of the account use up all request tokens
            (``pulumi_on_moto.running.throttling``). 0: this depends on the account.
        overlap: two invocations of the controller run concurrently: the second starts while the first makes
            the AWS call of this number (its queue mapping allows two). None: sequential.
        cancelled: the probability that a failed launch of a group ends ``Cancelled`` rather than ``Failed``
            (API reference, DescribeScalingActivities: either; no share is given).
        suspends_after_seconds: a group whose launches all failed for this time launches no more until its
            processes are resumed (Auto Scaling user guide, "Suspend and resume processes": administrative
            suspension, most commonly after 24 hours).
        seed: seed of the random draws.
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
        """Raise ``ValueError`` for a probability outside 0–1, a negative time or an overlap below 1."""
        for name in ("throttled", "cancelled"):
            if not 0.0 <= (chance := getattr(self, name)) <= 1.0:
                raise ValueError(f"{name} is {chance}, allowed: 0 to 1")
        for name in (name for name in self.__slots__ if name.endswith("_seconds")):
            if (seconds := getattr(self, name)) < 0:
                raise ValueError(f"{name} is {seconds}, allowed: a number ≥ 0")
        if self.overlap is not None and self.overlap < 1:
            raise ValueError(f"overlap is {self.overlap}, allowed: the number of a call, ≥ 1")

    def happens(self, chance: float, event: str, now: float) -> bool:
        """Draw whether an event with this probability happens at a time; deterministic by seed."""
        return chance > 0 and random.Random(f"{self.seed} {event} {now}").random() < chance
