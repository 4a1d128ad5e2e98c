"""The memory of a candidate's workers in comparison with that of the others, window by window."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import codec
from lambdas.core.rollout.memory_use import (
    FULL,
    MAX_WINDOWS,
    MAX_WORKERS,
    WARM_UP_SECONDS,
    WINDOW_SECONDS,
    MemoryReading,
    MemoryTrend,
    update,
)

START = 1_767_571_200.0
NOUN = "the memory"
Share = Callable[[float], float]
"""Share by the age of a process in minutes."""


def trends(
    new: Share, old: Share = lambda _: 0.5, minutes: int = 60, workers: int = 3, spread: float = 0.0
) -> Iterator[MemoryTrend]:
    """Yield the trend after each of the passes, a minute apart; the others are two hours older."""
    chance = random.Random(7)
    trend = MemoryTrend()

    def readings(name: str, share: Share, since: float, now: float) -> dict[str, MemoryReading]:
        return {
            f"{name}{number}/0": MemoryReading(since, share((now - since) / 60) + chance.gauss(0, spread))
            for number in range(workers)
        }

    for minute in range(1, minutes + 1):
        now = START + 60 * minute
        trend = update(trend, readings("n", new, START, now), readings("o", old, START - 7200, now), now)
        yield trend


def play(new: Share, old: Share = lambda _: 0.5, minutes: int = 60) -> MemoryTrend:
    """Return the last trend, as it is stored."""
    *_, last = trends(new, old, minutes)
    return codec.parse_text(MemoryTrend, json.dumps(codec.dump(last)))


def leak(per_hour: float, level: float = 0.5) -> Share:
    return lambda minutes: level + per_hour * minutes / 60


def cache(size: float, minutes_to_fill: float, level: float = 0.5) -> Share:
    return lambda minutes: level - size * math.expm1(-minutes / minutes_to_fill)


@pytest.mark.parametrize("spread", [0.0, 0.003])
@pytest.mark.parametrize("per_hour", [0.3, 0.6])
def test_a_leak_is_rejected_before_it_is_full_with_the_evidence(per_hour: float, spread: float) -> None:
    trend = next(trend for trend in trends(leak(per_hour), spread=spread) if trend.rejection_reason(NOUN))
    assert not trend.is_harmless
    assert trend.new_level < 0.85
    assert trend.rejection_reason(NOUN).startswith("its workers' memory has grown by ")
    assert "of the memory in " in trend.rejection_reason(NOUN)


def test_the_words_have_the_growth_of_both_and_when_it_is_full() -> None:
    trend = play(leak(0.6), leak(0.06, 0.3), minutes=25)
    assert trend.rejection_reason("what it may use") == (
        "its workers' memory has grown by 18.0% of what it may use in 18 minutes, to 75%, and that of others "
        "by 1.8%: it would be full in 0.6 hours"
    )


@pytest.mark.parametrize("spread", [0.0, 0.005, 0.01])
@pytest.mark.parametrize(
    "new",
    [
        lambda _: 0.5,
        lambda _: 0.85,
        lambda _: 0.2,
        cache(0.3, 20),
        cache(0.3, 60),
        cache(0.3, 120),
        cache(0.1, 600),
        lambda minutes: 0.6 + 0.1 * (minutes % 20 < 10),
        lambda minutes: 0.6 + 0.01 * (minutes % 17),
    ],
)
def test_a_safe_level_a_cache_and_peaks_are_no_reason(new: Share, spread: float) -> None:
    for trend in trends(new, minutes=240, spread=spread):
        assert not trend.rejection_reason(NOUN), trend


def test_what_both_do_is_no_reason() -> None:
    assert not play(leak(0.2, 0.4), lambda minutes: 0.2 + 0.2 * minutes / 60, minutes=90).rejection_reason(
        NOUN
    )


def test_a_steady_candidate_is_harmless_after_a_few_windows() -> None:
    assert not play(lambda _: 0.6, minutes=18).is_harmless
    assert play(lambda _: 0.6, minutes=22).is_harmless
    assert not play(lambda _: 0.97, minutes=22).is_harmless


def test_a_full_candidate_is_rejected_unless_the_others_are_as_full() -> None:
    trend = play(lambda _: 0.97, minutes=16)
    assert trend.rejection_reason(NOUN) == (
        "its workers use 97% of the memory, and others 50% in the same minutes: they would be killed for "
        "lack of memory"
    )
    assert not play(lambda _: 0.97, lambda _: 0.95, minutes=60).rejection_reason(NOUN)
    assert not play(lambda _: FULL - 0.01, minutes=60).rejection_reason(NOUN)
    assert not play(lambda minutes: 0.97 if minutes == 12 else 0.6, minutes=60).rejection_reason(NOUN)


def test_processes_that_start_later_do_not_warm_up_in_the_trend() -> None:
    trend = MemoryTrend()
    for minute in range(1, 61):
        now = START + 60 * minute
        new = {"a/0": MemoryReading(START, 0.5)}
        if minute > 25:  # four more instances fill their caches
            age = minute - 25
            new |= {f"{n}/0": MemoryReading(START + 1500, cache(0.4, 30)(age)) for n in "bcde"}
        trend = update(trend, new, {"o/0": MemoryReading(START - 7200, 0.5)}, now)
    assert {window.new for window in trend.growth} == {0.0}


def test_the_trend_starts_again_with_other_processes_and_survives_a_gap() -> None:
    trend = MemoryTrend()
    old = {"o/0": MemoryReading(START - 7200, 0.5)}

    def run(minutes: range, new: dict[str, MemoryReading]) -> None:
        nonlocal trend
        for minute in minutes:
            trend = update(trend, new, old, START + 60 * minute)

    run(range(1, 25), {"a/0": MemoryReading(START, 0.5)})
    windows = len(trend.growth)
    assert windows >= 4
    run(range(25, 26), {})
    run(range(26, 40), {"a/0": MemoryReading(START, 0.5)})
    assert len(trend.growth) > windows
    run(range(40, 45), {"a/0": MemoryReading(START + 2400, 0.3)})
    run(range(45, 60), {"a/0": MemoryReading(START + 2400, 0.3)})
    assert len(trend.growth) <= 4
    assert not trend.rejection_reason(NOUN)


def test_without_the_same_minutes_nothing_is_compared() -> None:
    trend = MemoryTrend()
    for minute in range(1, 120):
        new = {"a/0": MemoryReading(START, min(0.94, 0.5 + minute / 100))}
        trend = update(trend, new, {}, START + 60 * minute)
    assert (trend.growth, trend.rejection_reason(NOUN), trend.is_harmless) == ((), "", False)


@given(st.lists(st.lists(st.floats(0, 2), min_size=1, max_size=4), max_size=60), st.integers(1, 300))
def test_the_state_is_bounded_and_any_readings_are_judged(shares: list[list[float]], workers: int) -> None:
    trend = MemoryTrend()
    for minute, row in enumerate(shares):
        now = START + WARM_UP_SECONDS + 60 * minute
        new, old = (
            {f"{side}{n}": MemoryReading(START, row[n % len(row)]) for n in range(workers)} for side in "no"
        )
        trend = update(trend, new, old, now)
        trend.rejection_reason(NOUN)
    assert len(trend.growth) <= MAX_WINDOWS
    assert all(len(side) <= MAX_WORKERS for side in trend.peaks.values())
    assert WINDOW_SECONDS < WARM_UP_SECONDS
