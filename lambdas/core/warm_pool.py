"""How many stopped instances to keep behind a group: one more as long as it costs less than it spares."""

from __future__ import annotations

from math import comb
from typing import Final

from lambdas.core.events import NOTICE_SECONDS
from lambdas.core.history import OFFSET, SCALE, UNANNOUNCED, UNKNOWN_AGE
from lambdas.core.model import on_demand_share

WARM_PRICE: Final = 0.01
"""A stopped instance as a fraction of a running on-demand one: its root volume. 125 GiB of gp3 at $0.08 a
GiB and month are $0.0137 an hour, a g6.xlarge is $0.805 and a g5.2xlarge $1.212 (us-east-1)."""
COLD_BOOT: Final = 180.0
WARM_BOOT: Final = 60.0
"""Typical seconds from launch to ready, from nothing and out of a warm pool."""
RETURN: Final = 60.0
"""Seconds until who was released is stopped and can be started again: assumed. EC2 bills the time before it
stops, as before any release, and not the stopping itself (EC2 guide, "Amazon EC2 instance state changes")."""
UP: Final = 0.55
"""The mean share of time in which a zone has spot, over the zones of the public skypilot-org/spot-traces."""


def size(target: int, base: int, spot_percentage: int, zones: int, shortage_cost: float) -> int:
    """Return the warm instances for a group: at most its spot share, 0 where none pays.

    Spot spreads over the zones that have some just now, and a lost zone takes its whole share along. The n-th
    warm instance is used where that share is n or more: a use spares a worker the difference of the boots,
    and costs the preparation of a successor. Zones are taken as independent and the types of a zone as one
    pool, the careful reading. ``shortage_cost``: on-demand minutes for a worker-minute. How the answer
    compares with the best size in replays: ``bench/warm_pool.py``.
    """
    spot = target - on_demand_share(target, base, spot_percentage)
    return next((n for n in range(spot) if not _pays(n + 1, spot, zones, shortage_cost)), spot)


def _pays(n: int, spot: int, zones: int, shortage_cost: float) -> bool:
    hazard = SCALE / (OFFSET + UNKNOWN_AGE)
    uses = hazard * sum(
        up * comb(zones, up) * UP**up * (1 - UP) ** (zones - up)
        for up in range(1, zones + 1)
        if -(-spot // up) >= n
    )
    announced = max(0.0, COLD_BOOT - max(NOTICE_SECONDS, WARM_BOOT))
    spared = UNANNOUNCED * (COLD_BOOT - WARM_BOOT) + (1 - UNANNOUNCED) * announced
    # A warm start boots less on the bill, too; its successor boots in full.
    return uses * (shortage_cost * spared - WARM_BOOT) > WARM_PRICE
