"""What the market gives and takes under each rule, its traces, their pools, and the drawn market."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lambdas.core.model import Pool
from market.rules import NOTICE_SECONDS, Rules
from market.supply.drawn_market import FITTED, draw
from market.supply.placement import assign, named
from market.supply.spot import SpotMarket
from market.supply.trace import TraceError, load
from research.fit.market import moments, regions, simulated
from tests.market.markets import market, trace

TICKS_OF_GAP = 5


def whole(*samples: int, **rules: Any) -> SpotMarket:
    """Return a market of one pool of four, whose samples hold for five ticks each."""
    sold, _ = market(trace(*samples, gap=60.0 * TICKS_OF_GAP), pool_size=4, **rules)
    return sold


def capacities(sold: SpotMarket, pool: int = 0) -> list[int]:
    return [sold.capacity(pool, tick) for tick in range(sold.ticks)]


SAMPLES = [1, 0, 1, 1, 0, 0, 1, 0] * 10


@pytest.mark.parametrize("seed", range(5))
def test_a_drop_that_is_spread_takes_what_the_trace_says_within_its_gap(seed: int) -> None:
    at_once, spread = whole(*SAMPLES), whole(*SAMPLES, drop_spread=1.0, seed=seed)
    before, after = capacities(at_once), capacities(spread)
    assert before != after
    for tick, (sharp, soft) in enumerate(zip(before, after, strict=True)):
        since = tick - tick % TICKS_OF_GAP
        assert sharp <= soft <= (before[since - 1] if since else sharp) or soft == sharp
        if tick % TICKS_OF_GAP == TICKS_OF_GAP - 1:
            assert soft == sharp  # the gap is over
    assert any(0 < one - other < 4 for one, other in pairwise(after))  # some go alone


@pytest.mark.parametrize("seed", range(5))
def test_a_type_that_lags_has_the_same_changes_in_the_same_order_a_little_later(seed: int) -> None:
    sharp = whole(*SAMPLES)
    late = whole(*SAMPLES, types=2, type_lag_seconds=600.0, seed=seed)

    def changes(sold: SpotMarket, pool: int) -> list[tuple[int, int]]:
        seen = capacities(sold, pool)
        return [(tick, after) for tick, (before, after) in enumerate(pairwise(seen), 1) if after != before]

    sharp_changes = changes(sharp, 0)
    for pool in (0, 1):
        moved = changes(late, pool)
        assert [2 * after for _, after in moved] == [after for _, after in sharp_changes][: len(moved)]
        assert all(
            0 <= late_at - at <= 10 for (at, _), (late_at, _) in zip(sharp_changes, moved, strict=False)
        )
    assert changes(late, 0) != changes(late, 1)


def test_the_types_of_a_zone_share_what_its_trace_can_give() -> None:
    sold, _ = market(trace(1, 1, 1), pool_size=5, types=2, type_lag_seconds=0.0)
    assert sold.names == ("a", "a.2")
    assert [capacities(sold, pool)[0] for pool in (0, 1)] == [2, 3]


def test_on_demand_is_refused_only_while_no_pool_has_any() -> None:
    left, right = trace(1, 0, 0, 1, 0, 1, 0, 0, name="a"), trace(0, 0, 1, 1, 0, 0, 0, 1, name="b")
    sold, _ = market(left, right, on_demand_episodes=1.0)
    dry = [tick for tick in range(sold.ticks) if sold.on_demand_is_dry(tick)]
    assert dry == [1, 4, 6]
    never, _ = market(left, right)
    assert not any(never.on_demand_is_dry(tick) for tick in range(never.ticks))


def test_an_episode_is_refused_whole_or_not_at_all() -> None:
    sold, _ = market(trace(*([1, 0, 0, 0] * 50)), on_demand_episodes=0.5)
    episodes = [{sold.on_demand_is_dry(4 * n + k) for k in (1, 2, 3)} for n in range(50)]
    assert all(len(episode) == 1 for episode in episodes)
    assert 10 < sum(episode == {True} for episode in episodes) < 40


@pytest.mark.parametrize("shortest", [0.0, 60.0, NOTICE_SECONDS])
def test_a_notice_comes_at_most_two_minutes_ahead_and_never_at_the_drop(shortest: float) -> None:
    sold = whole(*SAMPLES, notice=1.0, shortest_notice_seconds=shortest)
    notices = [(tick, drop) for tick in range(sold.ticks) for drop in sold.announcements(tick)]
    leads = {drop.tick - tick for tick, drop in notices}
    assert leads == ({2} if shortest == NOTICE_SECONDS else {1, 2})
    lost = sum(after < before for before, after in pairwise(capacities(sold)))
    # A lead that rounds to nothing is none.
    assert (len(notices) < lost) == (shortest == 0.0)
    assert {drop.capacity for _, drop in notices} == {0}


def test_what_is_drawn_is_the_same_whatever_else_is_sold() -> None:
    rules = {"notice": 0.5, "shortest_notice_seconds": 0.0, "drop_spread": 1.0}
    one, other = trace(*SAMPLES, name="a", gap=300.0), trace(*SAMPLES[::-1], name="b", gap=300.0)
    alone = SpotMarket([one], Rules(**rules), 4)
    combined = SpotMarket([one, other], Rules(**rules), 4)
    assert capacities(alone) == capacities(combined)
    for tick in range(alone.ticks):
        assert list(alone.announcements(tick)) == [d for d in combined.announcements(tick) if d.pool == 0]


def write(path: Path, data: Any, gap: float = 60) -> Path:
    path.write_text(json.dumps({"metadata": {"gap_seconds": gap}, "data": data}))
    return path


@pytest.mark.parametrize(
    ("data", "gap", "message"),
    [
        ([], 60, "data must be a list of at least one sample, not a list of 0"),
        ([1, -1], 60, r"data\[1\] must be a whole number ≥ 0, not -1"),
        ([1, float("nan")], 60, r"data\[1\] must be a whole number ≥ 0, not nan"),
        ([1, 0.5], 60, r"data\[1\] must be a whole number ≥ 0, not 0\.5"),
        ([1, True], 60, r"data\[1\] must be a whole number ≥ 0, not True"),
        ([1] * 100, 0, r"metadata\.gap_seconds must be a positive number, not 0"),
    ],
)
def test_a_wrong_trace_is_one_line(tmp_path: Path, data: Any, gap: float, message: str) -> None:
    with pytest.raises(TraceError, match=message) as refused:
        load([write(tmp_path / "bad.json", data, gap)])
    assert "\n" not in str(refused.value)


def test_a_market_needs_a_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"holds no \.json file"):
        load([tmp_path])
    with pytest.raises(TraceError, match=r"none\.json does not exist"):
        load([tmp_path / "none.json"])


ZONES = ("us-west-2a", "us-west-2b")


def test_a_trace_stands_in_its_own_zone_and_others_fill_up() -> None:
    names = ["us-east-1f_v100_1", "us-west-2b_v100_1", "us-west-2a_v100_1"]
    assert assign(names, ZONES, ("g5.xlarge", "g6.xlarge")) == (
        Pool("g6.xlarge", "us-west-2a"),
        Pool("g5.xlarge", "us-west-2b"),
        Pool("g5.xlarge", "us-west-2a"),
    )


def test_two_traces_of_one_zone_take_two_instance_types() -> None:
    pools = assign(["us-west-2a_v100_1", "us-west-2a_v100_8"], ZONES, ("g5.xlarge", "g6.xlarge"))
    assert pools == (Pool("g5.xlarge", "us-west-2a"), Pool("g6.xlarge", "us-west-2a"))


def test_more_traces_than_pools_are_refused() -> None:
    with pytest.raises(TraceError, match="3 traces, but the group has only 2 capacity pools"):
        assign(["a", "b", "c"], ZONES, ("g5.xlarge",))


def test_a_name_says_zone_and_type() -> None:
    assert named(["us-west-2a_v100_8", "zone-1"]) == (Pool("v100_8", "us-west-2a"), Pool("any", "zone-1"))


def test_the_same_seed_draws_the_same_market() -> None:
    assert draw(3, 48, 7) == draw(3, 48, 7)
    assert draw(3, 48, 7) != draw(3, 48, 8)


def test_pools_are_named_and_sampled_once_a_minute() -> None:
    pools = draw(2, 24, 1)
    assert [p.name for p in pools] == ["model-1", "model-2"]
    assert all(p.gap_seconds == 60 and len(p.samples) == 1440 and set(p.samples) <= {0, 1} for p in pools)


@pytest.mark.parametrize(
    ("pools", "hours", "message"),
    [
        (0, 24, "pools must be at least 1, not 0"),
        *((1, hours, f"hours must be at least one minute, not {hours}") for hours in (0, math.nan)),
    ],
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
