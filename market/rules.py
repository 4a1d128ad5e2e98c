"""The rules of a replay, each a setting: times, prices, probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from contracts.group.warm_pool import COLD_BOOT_SECONDS, WARM_BOOT_SECONDS, WARM_INSTANCE_PRICE
from contracts.limits import NOTICE_SECONDS as NOTICE_SECONDS

TICK_SECONDS: Final = 60.0
_SHARES: Final = (
    "notice",
    "on_demand_refusal",
    "api_failure",
    "early",
    "warm_refusal",
    "on_demand_episodes",
    "drop_spread",
)


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings of the simulated market.

    Cold starts are seconds from launch to ready (``on_demand_cold_start``: of the fallback group, with or
    without warm pool); ``notice`` is the probability that a drop is announced 120 s ahead; ``spot_price`` the
    Spot price as a fraction of On-Demand; ``warm_up_ticks`` are replayed but not counted; ``drain_seconds``
    before its deadline an instance stops accepting work.

    Further behaviour of a real market, off by default: ``on_demand_refusal`` and ``api_failure`` are the
    probabilities that an On-Demand launch and a pass of the controller fail; ``retry_seconds``: wait of a
    group after a failed Spot launch unless its desired capacity changes; ``replace_seconds``: delay of the
    group's health check for a terminated instance; ``look_seconds``: schedule of the controller without
    events; ``on_demand_price`` (US dollars per hour) enables the prices in the traces instead of
    ``spot_price``; ``warm_instances`` bounds the sum of the fallback's warm pool and its instances in service
    (None: unbounded); beyond it a launch takes ``spot_cold_start``. A released instance is stopped and
    returns to the pool; without ``warm_reuse`` it is terminated, and preparing another takes
    ``spot_cold_start``. A stopped instance costs ``warm_price``, a fraction of On-Demand; the pool's cost is
    not part of the run's. With probability ``warm_refusal`` a stopped instance does not start and is lost.

    ``shortest_notice_seconds``: a notice comes between this and 120 s ahead. ``boot_spread``: standard
    deviation of the logarithm of boot times. ``on_demand_episodes``: share of Spot outages in which On-Demand
    is missing, too. ``drop_spread``: a drop interrupts one instance after another, over this share of the
    trace's interval. ``types`` of a zone fail together, at most ``type_lag_seconds`` apart. ``ceiling``:
    maximum of both groups as a multiple of the target.

    Rebalance recommendations: ``early`` is the share of drops with a recommendation ahead of them, whose lead
    is log-uniform between ``shortest_lead_seconds`` and ``longest_lead_seconds``; for each of these there are
    ``false_alarms`` without a drop. The other recommendations arrive with the notice and add no information.
    """

    seed: int = 1
    notice: float = 0.9
    spot_cold_start: float = COLD_BOOT_SECONDS
    on_demand_cold_start: float = WARM_BOOT_SECONDS
    spot_price: float = 0.3
    warm_up_ticks: int = 60
    drain_seconds: float = 0.0
    on_demand_refusal: float = 0.0
    api_failure: float = 0.0
    retry_seconds: float = 0.0
    replace_seconds: float = 0.0
    look_seconds: float = 0.0
    early: float = 0.0
    shortest_lead_seconds: float = 1020.0
    longest_lead_seconds: float = 31320.0
    false_alarms: float = 0.0
    warm_refusal: float = 0.0
    on_demand_price: float | None = None
    warm_instances: int | None = None
    warm_reuse: bool = False
    warm_price: float = WARM_INSTANCE_PRICE
    shortest_notice_seconds: float = NOTICE_SECONDS
    boot_spread: float = 0.0
    on_demand_episodes: float = 0.0
    drop_spread: float = 0.0
    types: int = 1
    type_lag_seconds: float = 300.0
    ceiling: float = 2.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a probability outside 0–1 or a negative time or price."""
        for name in _SHARES:
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} must be a probability between 0 and 1, not {value}")
        durations = [name for name in self.__slots__ if name.endswith(("_seconds", "_cold_start"))]
        for name in ("spot_price", "warm_price", "false_alarms", "boot_spread", *durations):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{name} must be a number ≥ 0, not {value}")
        if not NOTICE_SECONDS <= self.shortest_lead_seconds <= self.longest_lead_seconds:
            raise ValueError(
                f"leads must be {NOTICE_SECONDS:g} s or more, the shortest first, not "
                f"{self.shortest_lead_seconds:g} and {self.longest_lead_seconds:g}"
            )
        if self.shortest_notice_seconds > NOTICE_SECONDS:
            raise ValueError(
                f"shortest_notice_seconds must be at most {NOTICE_SECONDS:g}, "
                f"not {self.shortest_notice_seconds:g}"
            )
        if self.types < 1:
            raise ValueError(f"types must be at least 1, not {self.types}")
        if not 1 <= self.ceiling < math.inf:
            raise ValueError(f"ceiling must be a number ≥ 1, not {self.ceiling:g}")
        if self.on_demand_price is not None and not 0 < self.on_demand_price < math.inf:
            raise ValueError(f"on_demand_price must be a number > 0, not {self.on_demand_price}")
        if self.warm_instances is not None and self.warm_instances < 0:
            raise ValueError(f"warm_instances must be a number ≥ 0, not {self.warm_instances}")


HOSTILE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "retry_seconds": 600.0,
        "replace_seconds": 60.0,
        "warm_refusal": 0.1,
        "early": 0.6,
        "false_alarms": 21 / 9,
    }
)
"""Faults and delays of AWS, for rehearsals and ``python -m research.replay --inject-faults``.

- A group retries about ten minutes after a failed launch: seen in published logs.
- Without capacity rebalancing an instance is replaced after it was interrupted and its health check failed:
  Auto Scaling guide, "Capacity Rebalancing". That this takes a minute is assumed.
- A stopped instance reserves no capacity; one start in ten fails: assumed.
- Recommendations: "can arrive sooner than the notice" or with it (EC2 guide, "EC2 instance rebalance
  recommendations"). Of one night's 30, 21 led to nothing; 9 of 15 interruptions had one, 17 minutes to 8.7
  hours before (a thread of aws-node-termination-handler, April 2021). Nothing larger was found published.
"""


def ticks(seconds: float) -> int:
    """Return the number of ticks for ``seconds``, rounded up."""
    return math.ceil(seconds / TICK_SECONDS - 1e-9)
