"""The stopped instances behind a fallback group: who starts from there is ready sooner."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpu_spot.market.rules import Rules, ticks


@dataclass(slots=True)
class WarmPool:
    """A warm pool as Auto Scaling keeps it: what is taken is replaced by a launch, which is paid for.

    Without ``rules.warm_instances`` it has as many as are wanted and costs nothing.
    """

    rules: Rules
    _prepared_at: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Fill it; that was before tick 0."""
        self._prepared_at = [0] * (self.rules.warm_instances or 0)

    def take(self, tick: int) -> int | None:
        """Take an instance that is prepared, and begin its successor; return when that one will be.

        ``None``: there is none, the launch is a cold one. Without a bound a successor is there at once.
        """
        if self.rules.warm_instances is None:
            return tick
        prepared = next((at for at in self._prepared_at if at <= tick), None)
        if prepared is None:
            return None
        successor = tick + ticks(self.rules.spot_cold_start)
        self._prepared_at.remove(prepared)
        self._prepared_at.append(successor)
        return successor

    def cost(self, tick: int) -> float:
        """Return what it costs at the tick, in on-demand instances: preparing means running."""
        preparing = sum(at > tick for at in self._prepared_at)
        return preparing + (len(self._prepared_at) - preparing) * self.rules.warm_price
