"""The preflight as a whole: denied checks, output and exit status."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import boto3
import pytest

from gpu_spot import cli
from gpu_spot.preflight import account, stack
from gpu_spot.preflight import command as preflight
from gpu_spot.preflight.account import identify
from gpu_spot.preflight.check_result import Check, run_checks
from gpu_spot.preflight.checks import CHECKS
from pulumi_on_moto import AwsClients
from tests.docs.keys import documented
from tests.preflight import worlds
from tests.preflight.worlds import declared, error, stub_operation


def some(*checks: str) -> dict[str, Check]:
    return {name: CHECKS[name] for name in checks}


def test_a_denied_action_is_named_and_stops_no_other_check(clients: AwsClients) -> None:
    refused = "User: me is not authorized to perform: ssm:GetParametersByPath on resource: *"
    stub_operation(clients, "ssm", "GetParametersByPath", error("AccessDeniedException", refused))
    found = list(run_checks(worlds.stack(), identify(clients), some("names", "monthly cost")))
    assert [(check, one.status, one.finding) for check, one in found[:1]] == [
        ("names", "not known", "access denied for ssm:GetParametersByPath")
    ]
    assert found[-1][0] == "monthly cost"


def test_a_denial_without_action_names_its_operation(clients: AwsClients) -> None:
    stub_operation(clients, "ec2", "DescribeAvailabilityZones", error("UnauthorizedOperation", "no"))
    [(_, found), *_] = run_checks(worlds.stack(), identify(clients), some("zones and instance types"))
    assert (found.status, found.finding) == ("not known", "access denied for DescribeAvailabilityZones")


def test_another_aws_error_is_reported_and_stops_no_other_check(clients: AwsClients) -> None:
    stub_operation(clients, "ssm", "GetParametersByPath", error("ThrottlingException", "slow\ndown"))
    [(_, first), *rest] = run_checks(worlds.stack(), identify(clients), some("names", "monthly cost"))
    said = "An error occurred (ThrottlingException) when calling the GetParametersByPath operation: slow down"
    assert first.finding == said
    assert rest


@pytest.fixture
def prepared(clients: AwsClients, monkeypatch: pytest.MonkeyPatch) -> AwsClients:
    """The command on this account, with checks that moto supports."""
    group = declared("aws:autoscaling/group:Group")
    monkeypatch.setattr(stack, "read", lambda folder, name: worlds.stack(declared=[group]))
    monkeypatch.setattr(account, "connect", lambda region, profile: identify(clients))
    monkeypatch.setattr(preflight, "CHECKS", some("service-linked roles", "names", "monthly cost"))
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
    assert "ok: 3, warning: 1, failure: 0, not known: 0" in out
    assert "monthly cost" in out


def test_a_check_alone(prepared: AwsClients, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["preflight", "--json", "--only", "names"]) == 0
    assert {one["check"] for one in json.loads(capsys.readouterr().out)["remarks"]} == {"names"}
    assert cli.main(["preflight", "--only", "agents"]) == 2
    assert "use one of: service-linked roles, names, monthly cost" in capsys.readouterr().err


def test_a_check_that_cannot_ask_aws_has_exit_status_6(
    prepared: AwsClients, capsys: pytest.CaptureFixture[str]
) -> None:
    stub_operation(prepared, "ssm", "GetParametersByPath", error("AccessDeniedException", "no"))
    assert cli.main(["preflight", "--only", "names"]) == 6
    assert "not known: 1" in capsys.readouterr().out


def test_a_wrong_stack_and_missing_credentials_differ(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["preflight", "--stack", "nowhere"]) == 2
    assert "no file Pulumi.nowhere.yaml" in capsys.readouterr().err
    monkeypatch.setattr(stack, "read", lambda folder, name: worlds.stack())
    assert cli.main(["preflight", "--profile", "nobody"]) == 6
    assert "nobody" in capsys.readouterr().err


REPOSITORY = Path(__file__).parents[2]
SERVICES = {"service-quotas": "servicequotas", "elbv2": "elasticloadbalancing"}
# Attributes of a client that are not operations.
OTHER = {"meta", "get_paginator"}


def test_the_page_lists_every_action() -> None:
    text = (REPOSITORY / "docs" / "operations.md").read_text("utf-8")
    section = text.split("## Before the first `up`")[1].split("\n## ")[0]
    listed: set[str] = set()
    for service, operation in re.findall(r"`([a-z0-9-]+):([A-Za-z{},]+)`", section):
        head, _, rest = operation.partition("{")
        listed |= {f"{service}:{head}{one}" for one in rest.rstrip("}").split(",")}
    assert listed == asked()


def asked() -> set[str]:
    """Every action of the checks, from their source: operations by name are one of boto3's clients'."""
    found: set[str] = set()
    for path in (REPOSITORY / "gpu_spot" / "preflight").rglob("*.py"):
        source = path.read_text("utf-8")
        services = re.findall(r'(?:clients|client)\("([a-z0-9-]+)"\)', source)
        names = set(re.findall(r"\.((?:get|list|describe|simulate)_[a-z_]+)\(", source))
        names |= set(re.findall(r'get_paginator\(\s*"([a-z_]+)"', source))
        names |= {"list_tables"} if "deployed_tables(" in source else set()
        names |= {
            node.value
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.fullmatch(r"describe_[a-z_]+", node.value)
        }
        found |= {
            f"{SERVICES.get(service, service)}:{operation}"
            for service in services
            for operation in operations(service, names - OTHER)
        }
    return found


def operations(service: str, names: set[str]) -> set[str]:
    client = boto3.session.Session(region_name="us-east-1").client(
        service,  # type: ignore[call-overload]
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )
    known = client.meta.method_to_api_mapping
    return {str(known[name]) for name in names if name in known}
