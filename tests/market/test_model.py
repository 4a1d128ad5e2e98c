"""The drawn market: repeatable, well-formed, and like the traces it was fitted to."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bench.fit.market import moments, regions, simulated
from market.supply.drawn_market import FITTED, draw
from market.supply.trace import TraceError


def test_the_same_seed_draws_the_same_market() -> None:
    assert draw(3, 48, 7) == draw(3, 48, 7)
    assert draw(3, 48, 7) != draw(3, 48, 8)


def test_pools_are_named_and_sampled_once_a_minute() -> None:
    pools = draw(2, 24, 1)
    assert [p.name for p in pools] == ["model-1", "model-2"]
    assert all(p.gap_seconds == 60 and len(p.samples) == 1440 and set(p.samples) <= {0, 1} for p in pools)


@pytest.mark.parametrize(
    ("pools", "hours", "message"),
    [(0, 24, "pools is 0, at least 1"), (1, 0, "hours is 0, at least"), (1, math.nan, "hours is nan")],
)
def test_nothing_to_draw_is_refused(pools: int, hours: float, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        draw(pools, hours, 1)


@pytest.mark.long
def test_it_looks_like_the_traces(traces: Path | None) -> None:
    drawn = simulated(FITTED, range(100, 130))
    assert 0.45 < drawn.availability < 0.75
    assert 0.3 < drawn.up_run < 1.4
    assert 0.3 < drawn.down_run < 0.7
    assert 0.3 < drawn.correlation < 0.6
    if traces:
        traced = moments(regions(traces))
        for name in ("availability", "up_run", "down_run", "correlation", "long_up_share"):
            assert getattr(drawn, name) == pytest.approx(getattr(traced, name), rel=0.25)
