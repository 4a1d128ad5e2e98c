"""Market and API conditions under which the in-memory fleet and the deployed fleet are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from market.rules import HOSTILE
from market.supply.trace import PoolTrace


@dataclass(frozen=True)
class Conditions:
    """Conditions of a comparison.

    ``rules`` are those of the market, ``capacity`` settings of the group; ``happens`` names events that must
    occur in a run, otherwise the test proves nothing. A sample of a drawn trace holds for ``gap`` ticks;
    ``prices`` (US dollars an hour) alternate every two hours.
    """

    rules: Mapping[str, Any]
    happens: tuple[str, ...] = ()
    capacity: Mapping[str, Any] = field(default_factory=dict)
    gap: int = 1
    prices: tuple[float, ...] = ()

    def apply(self, trace: PoolTrace) -> PoolTrace:
        """Return a trace under these conditions."""
        samples, gap = trace.samples[:: self.gap], trace.gap_seconds * self.gap
        periods = [int(index * gap // _PRICE_SECONDS) for index in range(len(samples))]
        prices = tuple(self.prices[period % len(self.prices)] for period in periods) if self.prices else None
        return replace(trace, samples=samples, gap_seconds=gap, prices=prices)


_PRICE_SECONDS: Final = 2 * 3600.0
HOSTILE_AWS: Final = Conditions({**HOSTILE, "warm_refusal": 0.3})  # a day has few warm starts
WORLDS: Final[Mapping[str, Conditions]] = {
    "notices late, and of half of the losses": Conditions(
        {"notice": 0.5, "shortest_notice_seconds": 0.0}, ("notice", "unannounced"), {"max": 16}
    ),
    "on-demand refused by chance, and while there is no spot": Conditions(
        {"on_demand_refusal": 0.3, "on_demand_episodes": 1.0, "warm_refusal": 0.3},
        ("refusal of fallback", "warm-refusal", "interruption"),
    ),
    "a look each two minutes, of which some fail": Conditions(
        {"look_seconds": 120.0, "api_failure": 0.05}, ("notice", "interruption", "release")
    ),
    "boots that vary, drops one by one": Conditions(
        {"boot_spread": 0.3, "drop_spread": 1.0}, ("interruption", "boots that differ"), gap=10
    ),
    "two types that fail together, spot dear for hours": Conditions(
        {"types": 2, "on_demand_price": 1.0},
        ("interruption", "release"),
        {"instanceTypes": ["g5.xlarge", "g6.xlarge"]},
        prices=(0.3, 1.0, 0.7),
    ),
    "what AWS does besides": Conditions(
        {**HOSTILE, "warm_refusal": 0.3, "false_alarms": 10.0},
        ("recommendation", "warm-refusal", "refusal"),
        {"fallback.warmInstances": 2},
    ),
}
