"""What the rehearsed AWS does to us that AWS does now and then, or in its own time: one switch each.

What AWS always does is no matter of choice: that is put right in ``pulumi_on_moto``. What the market does,
its chances and times, stands in ``gpu_spot/market/rules.py``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hostility:
    """One field for each switch; times in seconds of simulated time.

    Attributes:
        hook_at_notice: a group with capacity rebalancing calls the termination hook at a two-minute notice
            (Auto Scaling user guide, "Use Capacity Rebalancing", considerations), so that the member waits in
            ``Terminating:Wait`` while its worker goes on. Off until the controller counts such members.
        fleet_modifying_seconds: a Spot Fleet is ``modifying`` for so long after each modification, shows the
            old target and refuses another (EC2 user guide, "Spot Fleet request states"; 3 s in
            kubernetes-retired/kube-aws#843). 0 until the controller makes one modification at a time.
        fleet_says_shortage: a fleet reports lack of spot as an error of the sub-type
            ``spotFleetRequestConfigurationInvalid`` (terraform-provider-aws#26493, c6fc/npk#70). Off until
            the controller judges by the text.
    """

    hook_at_notice: bool = False
    fleet_modifying_seconds: float = 0.0
    fleet_says_shortage: bool = False
