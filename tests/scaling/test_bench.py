"""What `make bench-scaling` measures, on two days of one load and on a few random worlds."""

from __future__ import annotations

import pytest

from bench.services import scaling
from market.load import worlds
from market.load.shapes import LoadShape


@pytest.fixture(scope="module")
def result() -> dict:
    few = [s for s in scaling.others() if s[0] in ("KEDA rate", "GPU use")][1::5]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scaling, "others", lambda: few)
        patch.setattr(scaling, "KNOB", (30.0, scaling.WAIT, 300.0))
        load = LoadShape("small", peak=3.0, bursts=6.0)
        return scaling.measure(scaling.worlds(2, [load], seeds=(1, 2)), scaling.WAIT, workers=1)


def test_ours_waits_no_longer_for_less(result: dict) -> None:
    assert result["p99_wait_ratio"] <= 1.0 or result["loads"]["small"]["p99_wait"] <= scaling.WAIT
    assert result["cost_ratio"] <= 0.95
    assert result["reversals"] == 0


def test_others_are_tuned_without_the_days_they_are_judged_on(result: dict) -> None:
    assert all("held_out" not in one for one in result["trained"])
    assert (result["days"], result["held_out"]) == (2, 1)


def test_who_allows_a_longer_wait_pays_less(result: dict) -> None:
    ours = [one["held_out"]["cost"] for one in result["judged"] if one["family"] == scaling.OURS]
    assert ours == sorted(ours, reverse=True)


def test_nothing_swings_in_random_worlds_and_roll_outs_leave_nine_tenths() -> None:
    # World 7 has a release that swallows requests of which there are never too many.
    played = [worlds.shaken(seed, hours=2) for seed in (0, 3, 5, 7)]
    assert [one.reversals for one in played] == [0] * 4
    told = worlds.rolled_out(played)
    assert told["served_despite_rollouts"] >= 0.9
    assert told["most_on_a_bad_release"] == 1
    assert told["asked_with_too_few_left"] == 0
    assert told["taken_back"] >= 4
