"""`make bench-node` plays all cases; here all of those in calm weather and a fixed share of the others."""

from __future__ import annotations

from itertools import product

import pytest

from tests.node import crash
from tests.node.crash import CONDITIONS, STARTS, THENS, Case, Outcome
from tests.soak import sample

ALL = list(crash.cases())
CHOSEN = [c for c in ALL if c.conditions == "calm"] + [c for c in ALL if c.conditions != "calm"][::9]


def test_there_are_enough_cases() -> None:
    assert len(ALL) >= 10_000
    assert len(CHOSEN) >= 2000
    kinds = {(c.start, c.conditions, c.then) for c in CHOSEN}
    assert len(kinds) == len(STARTS) * len(CONDITIONS) * len(THENS)


@pytest.mark.parametrize(("start", "then"), sample(product(STARTS, THENS), 2))
def test_a_kill_or_a_notice_at_any_call_loses_nothing_and_leaves_nothing(start: str, then: str) -> None:
    played = {c: crash.play(c) for c in CHOSEN if (c.start, c.then) == (start, then)}
    assert played
    assert {c: o for c, o in played.items() if o != Outcome(0, 0)} == {}


def test_random_histories_lose_nothing_and_leave_nothing() -> None:
    played = {seed: crash.soak(seed) for seed in range(30)}
    assert {s: o for s, o in played.items() if o != Outcome(0, 0)} == {}


def test_the_cases_reach_every_kind_of_call() -> None:
    reached: set[str] = set()
    for start in STARTS:
        region = crash._begin(start, "calm", 7)
        region.live("i-x", "a", release=True)
        reached |= {operation for _, operation in region.world.calls}
    assert reached >= {
        "acquire",
        "attach_volume",
        "claim",
        "commit",
        "create_snapshot",
        "create_tags",
        "create_volume",
        "delete_snapshot",
        "delete_volume",
        "describe_snapshots",
        "describe_volumes",
        "detach_volume",
        "release",
        "renew",
    }
    assert Case("other zone", "calm", "dies", 0, "before") in ALL
