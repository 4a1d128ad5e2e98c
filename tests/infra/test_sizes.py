"""What grows with a stack's entries ends the program before AWS refuses it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from infra.components.monitoring import dashboard
from infra.iam import scaler_statements
from infra.iam.statement import document
from infra.scope import Scope
from infra.settings import SettingsError
from tests.apart import apart
from tests.infra import program
from tests.infra.declared import Edit, edited_file, in_service

SCOPE = Scope("dev", "us-west-2", "123456789012", "aws")


def refusal(edit: Edit, mode: str = "known") -> str:
    text, _ = apart(program.refused, mode, "dev", edited_file(edit))
    return text


def test_a_group_has_no_more_hosts_than_its_parameter_holds_already_in_the_first_preview() -> None:
    hosts = [{"name": f"gpu-server-{number:03}.rack.example", "gpus": 8} for number in range(100)]
    said = refusal(in_service(command=["serve"], onPremises={"hosts": hosts}), "unknown")
    assert said.startswith("SettingsError: the configuration of 'inference' must have at most 4,096 bytes, ")
    assert said.endswith("; list fewer onPremises.hosts or instanceTypes")


def test_a_bucket_has_a_name_that_s3_takes_with_its_suffix() -> None:
    said = refusal({"stackName": "s" * 15, "storage": {"buckets": [{"name": "b" * 24}]}}, "unknown")
    assert f"{'s' * 15}-bucket-{'b' * 24}' must have at most 55 characters, not 56; shorten the name" in said


def with_jobs(config: dict[str, Any]) -> None:
    job = config["gpu-spot:training"][0]
    config["gpu-spot:training"] = [{**job, "name": f"resnet-{number}"} for number in range(34)]


def test_a_clusters_log_has_no_more_filters_than_cloudwatch_takes() -> None:
    text, _ = apart(program.refused, "unknown", "eks", edited_file(with_jobs, "eks"))
    assert "the cluster's audit log must have at most 100 metric filters, not 102; remove audit from" in text


def with_secrets(config: dict[str, Any]) -> None:
    [service] = config["gpu-spot:services"]
    config["gpu-spot:services"] = [
        {
            **service,
            "name": f"asr-{letter}",
            "command": ["serve"],
            "queue": {"kind": "rabbitmq", "existing": {"secret": letter * 500}},
        }
        for letter in "abcdefgh"
    ]


def test_the_queues_fit_the_environment_of_the_function_that_watches_them() -> None:
    said = refusal(with_secrets)
    assert said.startswith("SettingsError: the environment of queues must have at most 4,096 bytes, not ")
    assert said.endswith("; divide the entries between two stacks")


def test_the_trust_of_a_host_has_no_more_principals_than_iam_takes() -> None:
    arns = [f"arn:aws:iam::123456789012:role/teams/{'p' * 200}/{number}" for number in range(10)]
    hosts = {"hosts": [{"name": "gpu-server", "gpus": 8, "principals": arns}]}
    said = refusal(in_service(command=["serve"], onPremises=hosts), "unknown")
    assert said.startswith("SettingsError: the policy of Assume must have at most 2,048 characters, not ")
    assert said.endswith("; list fewer or shorter onPremises.hosts[].principals")


def widgets(rows: list[dashboard.DashboardRow]) -> int:
    return len(dashboard.body(SCOPE, rows, "function", "log")["widgets"])


@pytest.mark.parametrize(("row", "unit"), [([[]] * 4, "500 widgets"), ([["m"] * 20], "2,500 metrics")])
def test_the_dashboard_has_no_more_than_cloudwatch_takes(row: list[list[str]], unit: str) -> None:
    rows = [[{"properties": {"metrics": metrics}} for metrics in row]] * 125
    with pytest.raises(SettingsError, match=f"^the dashboard must have at most {unit}, not "):
        apart(widgets, rows)
    assert apart(widgets, rows[:100]) > 100 * len(row)


def policy(services: int) -> str:
    async def rendered() -> str:
        names = [f"service-of-customer-{number:03}" for number in range(services)]
        arns = {"memory_arn": "memory", "registry_arn": "registry"}
        statements = scaler_statements.scaler(SCOPE, names, **arns, reads_metrics=True)
        text = str(await document(statements).future())
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})  # as the engine does at the end
        return text

    return asyncio.run(rendered())


def test_a_roles_policy_has_no_more_than_iam_takes() -> None:
    assert json.loads(apart(policy, 50))
    with pytest.raises(SettingsError, match=r"^the policy of ReadGroups must have at most 10,240 characters"):
        apart(policy, 120)
