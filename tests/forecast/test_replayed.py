"""Replays of a group on markets with known outcomes."""

from __future__ import annotations

import pytest

from gpu_spot.forecast.ranges import Part
from gpu_spot.forecast.replayed import SEEDS, Question, drawn, parts
from market.supply.trace import PoolTrace

HOUR = 60


def market(*samples: tuple[int, ...]) -> tuple[PoolTrace, ...]:
    return tuple(PoolTrace(f"pool-{number}", 60.0, one) for number, one in enumerate(samples))


def asked(shares: tuple[float, ...], **more: object) -> Question:
    return Question(slots=2, shares=shares, policy="expected-cost", **more)  # type: ignore[arg-type]


def test_a_market_without_outages_costs_the_spot_price() -> None:
    always = (1,) * 25 * HOUR
    assert parts(asked((0.25,)), market(always)) == [Part(0.25, 0.0)] * 2


def test_spot_without_savings_is_not_launched() -> None:
    coming_and_going = ((1,) * HOUR + (0,) * HOUR) * 13
    found = parts(asked((1.2,)), market(coming_and_going))
    assert [part.cost for part in found] == pytest.approx([1.0, 1.0])
    assert sum(part.losses for part in found) == 0


def test_without_a_fallback_a_market_that_closes_is_missed_by_the_minute() -> None:
    half = (1,) * 13 * HOUR + (0,) * 12 * HOUR
    open_, closed = parts(asked((0.3,), fallback=False), market(half))
    assert (open_.cost, open_.shortage) == pytest.approx((0.3, 0.0))
    assert closed.shortage == pytest.approx(12 * 60)
    assert closed.cost == 0.0
    assert closed.losses == 1.0  # each slot once


def test_the_cheaper_type_of_a_zone_is_launched_and_zones_stay_balanced() -> None:
    always = (1,) * 25 * HOUR
    in_one = parts(asked((0.8, 0.2), zones=(0, 0)), market(always, always))
    in_two = parts(asked((0.8, 0.2), zones=(0, 1)), market(always, always))
    assert in_one[1].cost == pytest.approx(0.2)
    assert in_two[1].cost == pytest.approx(0.5)


def test_the_markets_of_the_model_are_an_easy_a_middling_and_a_hard_one() -> None:
    def empty(seed: int) -> int:
        return sum(trace.samples.count(0) for trace in drawn(seed))

    ranked = sorted(range(1, 21), key=empty)
    assert (ranked[1], ranked[9], ranked[17]) == SEEDS
