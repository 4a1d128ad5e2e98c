"""The sequential test: its error rates under repeated looks, and how many requests it needs."""

from __future__ import annotations

import random

import pytest

from lambdas.core.rollout.sequential_test import (
    MAX_HARMLESS_DIFFERENCE,
    MIN_HARMFUL_DIFFERENCE,
    SLOWDOWN,
    Evidence,
    Tally,
    add_failures,
    add_speed,
)


def window(chance: random.Random, new: float, old: float, pairs: int = 30) -> Tally:
    failed = [sum(chance.random() < share for _ in range(pairs)) for share in (new, old)]
    return Tally(pairs, failed[0], pairs, failed[1])


def share_of(new: float, old: float, name: str, seeds: int = 400, windows: int = 60) -> float:
    """Return the share of seeds in which a verdict is ever reached, with a look after each window."""
    reached = 0
    for seed in range(seeds):
        chance, evidence = random.Random(seed), Evidence()
        for _ in range(windows):
            evidence = add_failures(evidence, window(chance, new, old))
            if getattr(evidence, name):
                reached += 1
                break
    return reached / seeds


@pytest.mark.parametrize("old", [0.0, 0.05, 0.4])
def test_a_release_at_the_margin_is_hardly_ever_proven_worse_or_harmless_however_often_it_is_looked_at(
    old: float,
) -> None:
    assert share_of(old + MAX_HARMLESS_DIFFERENCE, old, "is_worse") <= 0.01
    assert share_of(old + MIN_HARMFUL_DIFFERENCE, old, "is_harmless") <= 0.01


@pytest.mark.parametrize(("failures", "windows"), [(1.0, 3), (0.45, 3), (0.1, 15), (0.05, 60)])
def test_more_failures_are_proven_within_so_many_windows_of_thirty_requests(
    failures: float, windows: int
) -> None:
    assert share_of(failures, 0.002, "is_worse", 100, windows) >= 0.95


def test_failures_of_one_window_prove_nothing_alone() -> None:
    evidence = add_failures(Evidence(), Tally(10_000, 10_000, 10_000, 0))
    assert not evidence.is_worse
    assert add_failures(add_failures(evidence, Tally(30, 30, 30, 0)), Tally(30, 30, 30, 0)).is_worse


def test_the_same_share_of_failures_on_both_sides_is_no_evidence_against_the_release() -> None:
    evidence = Evidence()
    for failed in (30, 20, 30, 25, 30):
        evidence = add_failures(evidence, Tally(30, failed, 300, 10 * failed))
    assert not evidence.is_worse


def test_a_release_that_becomes_worse_after_many_good_requests_is_still_detected() -> None:
    evidence = Evidence()
    for _ in range(1000):
        evidence = add_failures(evidence, Tally(30, 0, 300, 1))
    assert evidence.is_harmless
    for _ in range(6):
        evidence = add_failures(evidence, Tally(30, 20, 300, 1))
    assert evidence.is_worse


@pytest.mark.parametrize(("ratio", "is_worse"), [(0.0, False), (0.26, True), (3.0, True)])
def test_a_slower_release_is_proven_by_some_windows_and_an_equal_one_is_not(
    ratio: float, is_worse: bool
) -> None:
    evidence = Evidence()
    for _ in range(5):
        evidence = add_speed(evidence, ratio, ratio, 0.01)
    assert (evidence.is_worse, evidence.is_harmless) == (is_worse, not is_worse)


def test_where_batch_sizes_differ_the_evidence_of_each_verdict_is_the_lesser_one() -> None:
    evidence = Evidence()
    for _ in range(20):
        evidence = add_speed(evidence, 0.0, 0.3, 0.01)
    assert not evidence.is_worse
    assert not evidence.is_harmless
    assert SLOWDOWN > 1
