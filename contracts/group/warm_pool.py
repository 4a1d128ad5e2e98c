"""How many stopped instances to keep behind a group: as many as spot can lose, or none."""

from __future__ import annotations

from typing import Final

from contracts.group.on_demand_share import on_demand_share

WARM_PRICE: Final = 0.01
"""A stopped instance as a fraction of a running on-demand one: its root volume. 125 GiB of gp3 at $0.08 a
GiB and month are $0.0137 an hour, a g6.xlarge is $0.805 and a g5.2xlarge $1.212 (us-east-1)."""
COLD_BOOT: Final = 180.0
WARM_BOOT: Final = 60.0
"""Typical seconds from launch to ready, from nothing and out of a warm pool."""
RETURN: Final = 60.0
"""Seconds until who was released is stopped and can be started again: assumed. EC2 bills the time before it
stops, as before any release, and not the stopping itself (EC2 guide, "Amazon EC2 instance state changes")."""
PAYS_FROM: Final = 2.0
"""The ``shortageCost`` from which a pool pays (``make bench-warm-pool``)."""


def size(target: int, base: int, spot_percentage: int, shortage_cost: float) -> int:
    """Return the warm instances for a group: its spot share where a shortage is dear, else 0.

    A start out of the pool is paid two minutes less than one from nothing, at every loss, which is more than
    the pool's storage where spot is lost every other hour; ``shortage_cost`` (on-demand minutes for a
    worker-minute) comes on top. A part of the share is not worth it: one start from nothing, and the
    controller has to reckon with slow ones.
    """
    return target - on_demand_share(target, base, spot_percentage) if shortage_cost >= PAYS_FROM else 0
