"""Small markets for tests."""

from __future__ import annotations

from typing import Any

from market.replay.engine import Replay
from market.replay.ledger import Ledger
from market.rules import Rules
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace

QUICK: dict[str, Any] = {"warm_up_ticks": 0}


def trace(*samples: int, name: str = "a", gap: float = 60.0) -> PoolTrace:
    """Return a trace with one sample a tick."""
    return PoolTrace(name, gap, samples)


def market(*traces: PoolTrace, pool_size: int = 1, **rules: Any) -> tuple[SpotMarket, Rules]:
    """Return a market without warm-up, and its rules."""
    chosen = Rules(**{**QUICK, **rules})
    return SpotMarket(traces, chosen, pool_size), chosen


class EveryTick(Replay):
    """A replay that skips no tick."""

    def _next(self, tick: int) -> int:
        return tick + 1


def ready(ledger: Ledger) -> list[int]:
    """Return the ready instances at each tick."""
    return [span.ready for span in ledger.spans for _ in range(span.ticks)]
