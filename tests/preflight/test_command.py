"""The preflight as a whole: denied checks, output and exit status."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpu_spot import cli
from gpu_spot.commands import preflight
from gpu_spot.preflight import account, stack
from gpu_spot.preflight.account import identify
from gpu_spot.preflight.checks import monthly_cost, offerings
from gpu_spot.preflight.checks.account import github, name_conflicts, service_roles
from gpu_spot.preflight.inspection import run_checks
from pulumi_on_moto import AwsClients
from tests.docs.keys import documented
from tests.preflight import worlds
from tests.preflight.worlds import declared, error, stub_operation


def test_a_denied_action_is_named_and_stops_no_other_check(clients: AwsClients) -> None:
    refused = "User: me is not authorized to perform: ssm:GetParametersByPath on resource: *"
    stub_operation(clients, "ssm", "GetParametersByPath", error("AccessDeniedException", refused))
    found = list(run_checks(worlds.stack(), identify(clients), [name_conflicts, monthly_cost]))
    assert [(check, one.status, one.finding) for check, one in found[:1]] == [
        ("names", "not known", "access denied for ssm:GetParametersByPath")
    ]
    assert found[-1][0] == "monthly cost"


def test_a_denial_without_action_names_its_operation(clients: AwsClients) -> None:
    stub_operation(clients, "ec2", "DescribeAvailabilityZones", error("UnauthorizedOperation", "no"))
    [(_, found), *_] = run_checks(worlds.stack(), identify(clients), [offerings])
    assert (found.status, found.finding) == ("not known", "access denied for DescribeAvailabilityZones")


def test_another_aws_error_is_reported_and_stops_no_other_check(clients: AwsClients) -> None:
    stub_operation(clients, "ssm", "GetParametersByPath", error("ThrottlingException", "slow\ndown"))
    [(_, first), *rest] = run_checks(worlds.stack(), identify(clients), [name_conflicts, monthly_cost])
    assert first.finding == "GetParametersByPath returned ThrottlingException: slow down"
    assert rest


@pytest.fixture
def prepared(clients: AwsClients, monkeypatch: pytest.MonkeyPatch) -> AwsClients:
    """The command on this account, with checks that moto supports."""
    group = declared("aws:autoscaling/group:Group")
    monkeypatch.setattr(stack, "read", lambda folder, name: worlds.stack(declared=[group]))
    monkeypatch.setattr(account, "connect", lambda region, profile: identify(clients))
    monkeypatch.setattr(preflight, "CHECKS", (service_roles, name_conflicts, github, monthly_cost))
    return clients


def test_a_failure_has_exit_status_1_and_is_in_the_json(
    prepared: AwsClients, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["preflight", "--json"]) == 1
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (document["stack"], document["region"]) == ("dev", "us-west-2")
    assert document.keys() == documented("preflight")
    [failure] = [one for one in document["remarks"] if one["status"] == "failure"]
    assert failure["check"] == "service-linked roles"
    assert failure.keys() == {"check", "subject", "status", "found", "advice", "key"}


def test_warnings_end_with_zero_and_the_table_counts(
    prepared: AwsClients, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared("iam").create_role(RoleName="AWSServiceRoleForEC2Spot", AssumeRolePolicyDocument="{}")
    assert cli.main(["preflight"]) == 0
    out = capsys.readouterr().out
    assert "ok: 4, warning: 1, failure: 0, not known: 0" in out
    assert "monthly cost" in out


def test_a_wrong_stack_and_no_credentials_end_with_two(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["preflight", "--stack", "nowhere"]) == 2
    assert "no file Pulumi.nowhere.yaml" in capsys.readouterr().err
    monkeypatch.setattr(stack, "read", lambda folder, name: worlds.stack())
    assert cli.main(["preflight", "--profile", "nobody"]) == 2
    assert "nobody" in capsys.readouterr().err
