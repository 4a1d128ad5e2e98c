"""Each health verdict in the whole local cloud, by the deployed function on its schedule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.apart import apart
from tests.e2e.simulated_health import Outcome, simulate_all
from tests.iam import allowed_actions, allows

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def played() -> dict[str, Outcome]:
    return apart(simulate_all)


def test_no_action_on_healthy_instances(played: dict[str, Outcome]) -> None:
    seen = played["well"]
    assert (seen.replacements, seen.restarted, seen.messages) == ({}, [], [])
    assert set(seen.incidents) == {0.0}


@pytest.mark.parametrize("verdict", ["xid", "crashing", "silent", "missing"])
def test_replacement_is_requested_without_a_message_if_a_restart_does_not_help(
    played: dict[str, Outcome], verdict: str
) -> None:
    seen = played[verdict]
    assert seen.replacements == dict.fromkeys(seen.unhealthy, verdict)
    assert seen.restarted == []
    assert seen.messages == []


def test_its_role_has_exactly_the_needed_permissions(played: dict[str, Outcome]) -> None:
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
def test_a_worker_is_restarted_and_replaced_if_that_does_not_help(
    played: dict[str, Outcome], verdict: str
) -> None:
    seen = played[verdict]
    assert seen.restarted == seen.unhealthy
    assert seen.replacements == dict.fromkeys(seen.unhealthy, verdict)
    assert seen.messages == []


@pytest.mark.parametrize(
    ("phase", "incident"),
    [
        ("bad image", "common/crashing/version bad"),
        ("broker", "common/unfinished/version rehearsed"),
        ("registry", "common/unheard/registry"),
        ("old version", "old-version/aws"),
        ("on premises", "common/unheard/on-premises"),
    ],
)
def test_a_shared_cause_replaces_no_instance_and_sends_one_message(
    played: dict[str, Outcome], phase: str, incident: str
) -> None:
    seen = played[phase]
    assert (seen.replacements, seen.restarted) == ({}, [])
    assert [message for message in seen.messages if "over: " not in message] == [f"dev/inference: {incident}"]
    assert seen.incidents[-1] >= 1.0
