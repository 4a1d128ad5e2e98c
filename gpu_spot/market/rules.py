"""The rules of a replay, each a setting: times, prices, probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

TICK_SECONDS: Final = 60.0
NOTICE_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Rules:
    """How the market treats us.

    Seconds from launch to ready by market (``on_demand_cold_start`` is that of the fallback group, warm pool
    or not); ``notice`` is the probability that a drop is announced 120 s ahead; ``spot_price`` the price of
    spot as a fraction of on-demand; ``warm_up_ticks`` are replayed but not counted; ``drain_seconds`` how
    long before its deadline an instance stops taking work.
    """

    seed: int = 1
    notice: float = 0.9
    spot_cold_start: float = 180.0
    on_demand_cold_start: float = 60.0
    spot_price: float = 0.3
    warm_up_ticks: int = 60
    drain_seconds: float = 0.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a probability outside 0–1 or a negative time or price."""
        if not 0.0 <= self.notice <= 1.0:
            raise ValueError(f"notice is {self.notice}, a probability between 0 and 1 is needed")
        for name in ("spot_cold_start", "on_demand_cold_start", "spot_price", "drain_seconds"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{name} is {value}, a number ≥ 0 is needed")


def ticks(seconds: float) -> int:
    """Return the whole ticks after which ``seconds`` have passed."""
    return math.ceil(seconds / TICK_SECONDS - 1e-9)
