"""Each verdict in the whole local cloud, by the function that is deployed and on its own schedule."""

from __future__ import annotations

import pytest

from tests.apart import apart
from tests.e2e.health_scenes import Seen, common_causes, verdicts


@pytest.fixture(scope="module")
def one_by_one() -> dict[str, Seen]:
    return apart(verdicts)


@pytest.fixture(scope="module")
def together() -> dict[str, Seen]:
    return apart(common_causes)


def test_who_is_well_is_let_alone(one_by_one: dict[str, Seen]) -> None:
    seen = one_by_one["well"]
    assert (seen.wished, seen.restarted, seen.told) == ({}, [], [])
    assert set(seen.incidents) == {0.0}


@pytest.mark.parametrize("verdict", ["xid", "crashing", "silent", "missing"])
def test_what_a_restart_does_not_mend_is_wished_replaced_and_wakes_nobody(
    one_by_one: dict[str, Seen], verdict: str
) -> None:
    seen = one_by_one[verdict]
    assert seen.wished == dict.fromkeys(seen.ill, verdict)
    assert seen.restarted == []
    assert seen.told == []


@pytest.mark.parametrize("verdict", ["stuck", "idle-gpu"])
def test_a_worker_is_restarted_and_replaced_where_that_does_not_help(
    one_by_one: dict[str, Seen], verdict: str
) -> None:
    seen = one_by_one[verdict]
    assert seen.restarted == seen.ill
    assert seen.wished == dict.fromkeys(seen.ill, verdict)
    assert seen.told == []


@pytest.mark.parametrize(
    ("scene", "incident"),
    [
        ("bad image", "common/crashing/version bad"),
        ("broker", "common/unfinished/version rehearsed"),
        ("registry", "common/unheard/registry"),
        ("old version", "old-version/aws"),
        ("on premises", "common/unheard/on-premises"),
    ],
)
def test_one_cause_burns_no_capacity_rings_one_alarm_and_sends_one_message(
    together: dict[str, Seen], scene: str, incident: str
) -> None:
    seen = together[scene]
    assert (seen.wished, seen.restarted) == ({}, [])
    assert [told for told in seen.told if "over: " not in told] == [f"dev/inference: {incident}"]
    assert seen.incidents[-1] >= 1.0
