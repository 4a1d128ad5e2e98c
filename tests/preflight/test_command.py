"""The whole of it: what one check may not see, how remarks are shown, how the command ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpu_spot import cli
from gpu_spot.commands import preflight
from gpu_spot.preflight import account, stack
from gpu_spot.preflight.account import identified
from gpu_spot.preflight.checks import money, offerings
from gpu_spot.preflight.checks.account import github, service_roles, taken_names
from gpu_spot.preflight.inspection import inspect
from pulumi_on_moto import AwsClients
from tests.docs.keys import documented
from tests.preflight import worlds
from tests.preflight.worlds import answer, declared, error


def test_what_may_not_be_looked_at_is_named_and_stops_nothing_else(clients: AwsClients) -> None:
    refused = "User: me is not authorized to perform: ssm:GetParametersByPath on resource: *"
    answer(clients, "ssm", "GetParametersByPath", error("AccessDeniedException", refused))
    found = list(inspect(worlds.stack(), identified(clients), [taken_names, money]))
    assert [(check, one.status, one.found) for check, one in found[:1]] == [
        ("names", "not known", "may not ssm:GetParametersByPath")
    ]
    assert found[-1][0] == "money a month"


def test_a_denial_that_names_nothing_is_told_by_its_operation(clients: AwsClients) -> None:
    answer(clients, "ec2", "DescribeAvailabilityZones", error("UnauthorizedOperation", "no"))
    [(_, found), *_] = inspect(worlds.stack(), identified(clients), [offerings])
    assert (found.status, found.found) == ("not known", "may not DescribeAvailabilityZones")


def test_another_error_of_aws_is_told_and_stops_nothing_else(clients: AwsClients) -> None:
    answer(clients, "ssm", "GetParametersByPath", error("ThrottlingException", "slow\ndown"))
    [(_, first), *rest] = inspect(worlds.stack(), identified(clients), [taken_names, money])
    assert first.found == "GetParametersByPath answered ThrottlingException: slow down"
    assert rest


@pytest.fixture
def prepared(clients: AwsClients, monkeypatch: pytest.MonkeyPatch) -> AwsClients:
    """The command on this account; of the checks those that moto can answer."""
    group = declared("aws:autoscaling/group:Group")
    monkeypatch.setattr(stack, "read", lambda folder, name: worlds.stack(declared=[group]))
    monkeypatch.setattr(account, "connect", lambda region, profile: identified(clients))
    monkeypatch.setattr(preflight, "CHECKS", (service_roles, taken_names, github, money))
    return clients


def test_a_failure_ends_with_one_and_json_says_which(
    prepared: AwsClients, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["preflight", "--json"]) == 1
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (told["stack"], told["region"]) == ("dev", "us-west-2")
    assert told.keys() == documented("preflight")
    [failure] = [one for one in told["remarks"] if one["status"] == "failure"]
    assert failure["check"] == "service-linked roles"
    assert failure.keys() == {"check", "subject", "status", "found", "advice"}


def test_warnings_end_with_zero_and_the_table_counts(
    prepared: AwsClients, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared("iam").create_role(RoleName="AWSServiceRoleForEC2Spot", AssumeRolePolicyDocument="{}")
    assert cli.main(["preflight"]) == 0
    out = capsys.readouterr().out
    assert "ok: 4, warning: 1, failure: 0, not known: 0" in out
    assert "money a month" in out


def test_a_wrong_stack_and_no_credentials_end_with_two(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["preflight", "--stack", "nowhere"]) == 2
    assert "no file Pulumi.nowhere.yaml" in capsys.readouterr().err
    monkeypatch.setattr(stack, "read", lambda folder, name: worlds.stack())
    assert cli.main(["preflight", "--profile", "nobody"]) == 2
    assert "nobody" in capsys.readouterr().err
