"""All cases in calm weather, and a fixed share of the others."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

import pytest

from tests.node import crash, interleave
from tests.node.crash import CONDITIONS, STARTS, THENS, Outcome
from tests.node.interleave import RANDOM_PLAYS, Play, RandomPlay
from tests.node.test_volume_hostile import CHANGES, TABLE
from tests.soak import sample

ALL = list(crash.cases())
CHOSEN = [c for c in ALL if c.conditions == "calm"] + [c for c in ALL if c.conditions != "calm"][::9]


def test_there_are_enough_cases_and_they_reach_every_kind_of_call() -> None:
    assert len(ALL) >= 10_000
    assert len(CHOSEN) >= 2000
    kinds = {(c.start, c.conditions, c.then) for c in CHOSEN}
    assert len(kinds) == len(STARTS) * len(CONDITIONS) * len(THENS)
    reached: set[str] = set()
    for start in STARTS:
        region = crash._begin(start, "calm", 7)
        region.live("i-x", "a", release=True)
        reached |= {operation for _, operation in region.world.calls}
    changes = (TABLE | CHANGES) - {"adopt", "modify_volume"}
    assert reached >= changes | {"describe_volumes", "describe_snapshots"}


@pytest.mark.parametrize(("start", "then"), sample(product(STARTS, THENS), 5))
def test_a_kill_or_a_notice_at_any_call_loses_nothing_and_leaves_nothing(start: str, then: str) -> None:
    played = {c: crash.play(c) for c in CHOSEN if (c.start, c.then) == (start, then)}
    assert played
    assert {c: o for c, o in played.items() if o != Outcome(0, 0)} == {}


AT_RANDOM = [RandomPlay(seed) for seed in range(150)]


@pytest.mark.parametrize("first", sample(range(4), 4))
def test_random_histories_lose_nothing_and_leave_nothing(first: int) -> None:
    played = {seed: crash.soak(seed) for seed in range(first, 30, 4)}
    assert {s: o for s, o in played.items() if o != Outcome(0, 0)} == {}


@cache
def every() -> list[Play]:
    return list(interleave.plays())


def outcomes(
    plays: list[Play], at_random: list[RandomPlay] = AT_RANDOM
) -> Iterator[tuple[Play | RandomPlay, Outcome]]:
    for play in plays:
        yield play, interleave.play(play)
    for random in at_random:
        yield random, interleave.play_at_random(random)


def test_there_are_enough_of_them() -> None:
    assert len(every()) >= 10_000
    assert len(every()) + RANDOM_PLAYS >= 12_000
    assert len(set(every())) == len(every())


@pytest.mark.parametrize("part", sample(range(4), 4))
def test_no_interleaving_loses_anything_or_leaves_anything(part: int) -> None:
    chosen = [
        *[play for play in every() if play.again is None][::12],
        *[play for play in every() if play.again is not None][::160],
    ]
    found = outcomes(chosen[part::4], AT_RANDOM[part::4])
    assert [(play, outcome) for play, outcome in found if outcome != Outcome(0, 0)] == []
