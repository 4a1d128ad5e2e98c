"""`make bench-node` plays all of them; here those with two stops, and a share of the others."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from tests.node import interleave, mutants
from tests.node.crash import Outcome
from tests.node.interleave import RANDOM_PLAYS, Play, RandomPlay

AT_RANDOM = [RandomPlay(seed) for seed in range(150)]


@cache
def every() -> list[Play]:
    return list(interleave.plays())


def with_two_stops() -> list[Play]:
    return [play for play in every() if play.again is None]


def outcomes(plays: list[Play]) -> Iterator[tuple[Play | RandomPlay, Outcome]]:
    for play in plays:
        yield play, interleave.play(play)
    for random in AT_RANDOM:
        yield random, interleave.play_at_random(random)


def test_there_are_enough_of_them() -> None:
    assert len(every()) >= 10_000
    assert len(every()) + RANDOM_PLAYS >= 12_000
    assert len(set(every())) == len(every())


def test_no_interleaving_loses_anything_or_leaves_anything() -> None:
    chosen = [*with_two_stops()[::12], *[play for play in every() if play.again is not None][::160]]
    assert [(play, found) for play, found in outcomes(chosen) if found != Outcome(0, 0)] == []


@pytest.mark.soak
@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: f"rule {mutant.rule}: {mutant.name}")
def test_every_broken_rule_loses_something(mutant: mutants.Mutant) -> None:
    with mutants.applied(mutant):
        lost = next((play for play, found in outcomes(with_two_stops()) if found.lost), None)
    assert lost is not None, "the plays cannot tell this mutant from the protocol"


def test_every_rule_has_a_mutant() -> None:
    assert {mutant.rule for mutant in mutants.MUTANTS} == {1, 2, 3}
