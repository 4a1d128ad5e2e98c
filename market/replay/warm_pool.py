"""The warm pool of a fallback group: its stopped instances start faster than new ones."""

from __future__ import annotations

from dataclasses import dataclass, field

from contracts.group.warm_pool import RETURN_SECONDS
from market.rules import Rules, ticks


@dataclass(slots=True)
class WarmPool:
    """A warm pool as Auto Scaling manages it; with those in service it has ``rules.warm_instances``.

    Source: Auto Scaling guide, "Warm pools for applications with long boot times", on the maximum prepared
    capacity and the instance reuse policy. Without the bound it is never empty and costs nothing.
    """

    rules: Rules
    _prepared_at: list[int] = field(default_factory=list)
    _serving: int = 0

    def __post_init__(self) -> None:
        """Fill the pool, as before tick 0."""
        self._prepared_at = [0] * (self.rules.warm_instances or 0)

    def take(self, tick: int) -> bool:
        """Launch one instance; return whether it comes from the pool, else it boots in full."""
        self._serving += 1
        if self.rules.warm_instances is None:
            return True
        prepared = next((at for at in self._prepared_at if at <= tick), None)
        if prepared is not None:
            self._prepared_at.remove(prepared)
        return prepared is not None

    def follow(self, serving: int, tick: int) -> int:
        """Set the number in service after terminations; return the tick at which the pool is refilled.

        Instances beyond its size are terminated and not replaced.
        """
        released, self._serving = self._serving - serving, serving
        if released <= 0:
            return tick
        takes = (
            self.rules.drain_seconds + RETURN_SECONDS if self.rules.warm_reuse else self.rules.spot_cold_start
        )
        room = (self.rules.warm_instances or 0) - serving - len(self._prepared_at)
        self._prepared_at += [tick + ticks(takes)] * min(released, room)
        return tick + ticks(takes)

    def cost(self, tick: int) -> float:
        """Return the pool's cost at the tick, in On-Demand instances; preparing instances run."""
        preparing = 0 if self.rules.warm_reuse else sum(at > tick for at in self._prepared_at)
        return preparing + (len(self._prepared_at) - preparing) * self.rules.warm_price
