"""Each verdict in the whole local cloud, by the function that is deployed and on its own schedule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.apart import apart
from tests.e2e.health_scenes import Seen, scenes
from tests.iam import allowed_actions, allows


@pytest.fixture(scope="module")
def played() -> dict[str, Seen]:
    return apart(scenes)


def test_who_is_well_is_let_alone(played: dict[str, Seen]) -> None:
    seen = played["well"]
    assert (seen.wished, seen.restarted, seen.told) == ({}, [], [])
    assert set(seen.incidents) == {0.0}


@pytest.mark.parametrize("verdict", ["xid", "crashing", "silent", "missing"])
def test_what_a_restart_does_not_mend_is_wished_replaced_and_wakes_nobody(
    played: dict[str, Seen], verdict: str
) -> None:
    seen = played[verdict]
    assert seen.wished == dict.fromkeys(seen.ill, verdict)
    assert seen.restarted == []
    assert seen.told == []


def test_its_role_allows_what_it_does_and_no_more(played: dict[str, Seen]) -> None:
    role, asked = played["well"].permissions
    assert [request for request in asked if not allows(role, request)] == []
    used = {request.action for request in asked}
    # Lambda writes the log; no message had to be sent where one is ill at a time, but the daily one.
    assert allowed_actions(role) - used == {"logs:CreateLogStream", "logs:PutLogEvents"}
    for request in asked:
        if request.action == "dynamodb:UpdateItem":
            state = {**request.context, "dynamodb:Attributes": ["group", "worker", "state"]}
            assert not allows(role, replace(request, context=state))
        if request.action == "dynamodb:PutItem":
            controllers = {**request.context, "dynamodb:LeadingKeys": ["inference"]}
            assert not allows(role, replace(request, context=controllers))
        if request.action == "ssm:PutParameter":
            target = request.resource.replace("/wishes", "/target")
            assert not allows(role, replace(request, resource=target))


@pytest.mark.parametrize("verdict", ["stuck", "idle-gpu"])
def test_a_worker_is_restarted_and_replaced_where_that_does_not_help(
    played: dict[str, Seen], verdict: str
) -> None:
    seen = played[verdict]
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
    played: dict[str, Seen], scene: str, incident: str
) -> None:
    seen = played[scene]
    assert (seen.wished, seen.restarted) == ({}, [])
    assert [told for told in seen.told if "over: " not in told] == [f"dev/inference: {incident}"]
    assert seen.incidents[-1] >= 1.0
