"""The rules of a replay, each a setting: times, prices, probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from lambdas.core.events import NOTICE_SECONDS as NOTICE_SECONDS
from lambdas.core.warm_pool import COLD_BOOT, WARM_BOOT, WARM_PRICE

TICK_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Rules:
    """How the market treats us.

    Seconds from launch to ready by market (``on_demand_cold_start`` is that of the fallback group, warm pool
    or not); ``notice`` is the probability that a drop is announced 120 s ahead; ``spot_price`` the price of
    spot as a fraction of on-demand; ``warm_up_ticks`` are replayed but not counted; ``drain_seconds`` how
    long before its deadline an instance stops taking work.

    What a real market does besides, off by default: ``on_demand_refusal`` and ``api_failure`` are the
    probabilities that an on-demand launch is refused and that a look of the controller fails;
    ``retry_seconds`` how long a group waits after a refused spot launch unless its desired capacity changes;
    ``look_seconds`` the schedule of a controller that no event wakes; ``rebalance_seconds`` how long before
    its notice a rebalance recommendation comes; ``on_demand_price`` (US dollars an hour) turns the prices in
    the traces on instead of ``spot_price``; ``warm_instances`` bounds the fallback's warm pool: beyond it a
    launch takes ``spot_cold_start``, and so does the preparation of a successor (None: as many as needed). A
    stopped instance costs ``warm_price``, a fraction of on-demand; the pool's cost is no part of the run's.
    """

    seed: int = 1
    notice: float = 0.9
    spot_cold_start: float = COLD_BOOT
    on_demand_cold_start: float = WARM_BOOT
    spot_price: float = 0.3
    warm_up_ticks: int = 60
    drain_seconds: float = 0.0
    on_demand_refusal: float = 0.0
    api_failure: float = 0.0
    retry_seconds: float = 0.0
    look_seconds: float = 0.0
    rebalance_seconds: float = 0.0
    on_demand_price: float | None = None
    warm_instances: int | None = None
    warm_price: float = WARM_PRICE

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a probability outside 0–1 or a negative time or price."""
        for name in ("notice", "on_demand_refusal", "api_failure"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} is {value}, a probability between 0 and 1 is needed")
        durations = [name for name in self.__slots__ if name.endswith(("_seconds", "_cold_start"))]
        for name in ("spot_price", "warm_price", *durations):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{name} is {value}, a number ≥ 0 is needed")
        if self.on_demand_price is not None and not 0 < self.on_demand_price < math.inf:
            raise ValueError(f"on_demand_price is {self.on_demand_price}, a number > 0 is needed")
        if self.warm_instances is not None and self.warm_instances < 0:
            raise ValueError(f"warm_instances is {self.warm_instances}, a number ≥ 0 is needed")


def ticks(seconds: float) -> int:
    """Return the whole ticks after which ``seconds`` have passed."""
    return math.ceil(seconds / TICK_SECONDS - 1e-9)
