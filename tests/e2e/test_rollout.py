"""A bad and a good image in the whole local cloud, by the deployed functions."""

from __future__ import annotations

import pytest

from tests.apart import apart
from tests.e2e.simulated_rollout import BAD, GOOD, OLD, TARGET, Outcome, Rolled, simulate_all
from tests.iam import allows

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def played() -> Outcome:
    return apart(simulate_all)


def test_a_bad_image_goes_back_while_nine_tenths_are_served_and_one_message_says_so(played: Outcome) -> None:
    bad = played.bad
    assert max(bad.tried) == 1
    assert min(bad.served) >= 0.9 * TARGET
    assert bad.ends == {OLD: TARGET}
    assert bad.boots == OLD
    digest = BAD.rpartition("@")[2]
    assert bad.messages == [f"dev/inference: roll-back/{digest}"]


def test_a_good_image_reaches_all_workers_while_nine_tenths_are_served(played: Outcome) -> None:
    good = played.good
    assert min(good.served) >= 0.9 * TARGET
    assert good.ends == {GOOD: TARGET}
    assert good.boots == GOOD
    # The surge's boot and a look, one host, then two batches: docs/services.md.
    assert len(good.served) - 3 <= 4 + 3 * 11


@pytest.mark.parametrize("phase", ["bad", "good"])
def test_a_surge_is_launched_and_terminated(played: Outcome, phase: str) -> None:
    seen: Rolled = getattr(played, phase)
    assert max(seen.alive) in (TARGET + 1, TARGET + 2)
    assert seen.alive[-1] == TARGET


def test_each_function_writes_its_own_parameters_and_the_checker_terminates_nothing(played: Outcome) -> None:
    assert {leaf for writer, leaf in played.writers if writer == "health"} <= {"wishes", "rolling"}
    assert {leaf for writer, leaf in played.writers if writer != "health"} & {"wishes", "rolling"} == set()
    assert played.ended == set()
    assert played.replacements == set()
    role, asked = played.permissions
    assert {request.action for request in asked} == {
        "ssm:PutParameter",
        "dynamodb:PutItem",
        "dynamodb:UpdateItem",
    }
    assert [request for request in asked if not allows(role, request)] == []
