"""A small part of `make bench-rollout`: the verdicts on releases that fail more or are slower."""

from __future__ import annotations

import pytest

from bench.parts.judged_rollouts import Case, JudgedRollout
from bench.services import rollout


@pytest.mark.parametrize("seed", [0, 1])
def test_every_cell_of_the_matrix_ends_right(seed: int) -> None:
    summary = rollout.summarise(rollout.play(seed))
    assert summary["lost"] == []
    assert (summary["cases"], summary["right"]) == (57, 57)


@pytest.mark.parametrize("has_outage", [False, True])
def test_a_good_release_reaches_all_instances(has_outage: bool) -> None:
    results = [JudgedRollout(Case(0.01, 1.0, has_outage, 8), seed).run() for seed in range(6)]
    assert {result.verdict for result in results} == {"accepted"}


def test_a_release_that_fails_all_requests_gets_few() -> None:
    results = [JudgedRollout(Case(1.0, 1.0, False, 8), seed).run() for seed in range(6)]
    assert max(result.requests for result in results) <= 300
    assert all("requests failed (100.0%)" in result.reason for result in results)


@pytest.mark.parametrize("memory", ["leaks 60 % an hour", "96 % from its start"])
def test_a_release_that_will_be_killed_is_rejected_with_the_evidence(memory: str) -> None:
    case = Case(0.01, 1.0, False, 8, memory)
    results = [JudgedRollout(case, seed).run() for seed in range(4)]
    assert {result.verdict for result in results} == {"rejected"}
    assert all("memory" in result.reason or "crash loop" in result.reason for result in results), results


@pytest.mark.parametrize("memory", ["three fifths more", "both leak 10 % an hour"])
def test_a_level_that_is_safe_and_what_both_do_is_no_reason(memory: str) -> None:
    case = Case(0.01, 1.0, False, 8, memory)
    assert {JudgedRollout(case, seed).run().verdict for seed in range(4)} == {"accepted"}


def test_the_page_has_a_row_for_each_pair_and_names_what_is_lost() -> None:
    summary = rollout.summarise(rollout.play(2))
    cell = next(one for one in summary["cells"] if one["memory"] == "as before" and one["failures"] == 0.01)
    summary["lost"] = [{**cell, "target": 2, "right": 0}]
    text = rollout.page(summary)
    assert text.count("\n| ") == (2 + 25) + (2 + 7)
    assert "Wrong: 2 workers, 1% failures, × 1, memory as before: 1 of 1." in text
