"""The Lambda entry point: recorded payloads in, partial batch response and structured lines out."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from aws_lambda_powertools import Logger

from lambdas.aws.controller import Controller
from lambdas.core import names
from lambdas.handlers import controller as entry
from tests.lambdas.fake_aws import FakeAws
from tests.lambdas.scene import NOW, ROOT, config, controller

EVENTS = Path(__file__).parent.parent / "events"
DOOMED = "i-0000000000000000a"


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> io.StringIO:
    """What the handler logs; Powertools binds a stream when a logger is made, before any test captures."""
    stream = io.StringIO()
    monkeypatch.setattr(entry, "logger", Logger(service=request.node.name, stream=stream))
    return stream


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, log: io.StringIO) -> FakeAws:
    fake = FakeAws(parameters={f"{ROOT}/inference/config": config(), f"{ROOT}/inference/target": "2"})
    fake.add_group("primary", desired=2)
    fake.add_group("fallback")
    for name in (DOOMED, "i-0000000000000000b"):
        fake.add_instance(
            "primary", name, spot=True, launched=NOW - 3600, heartbeat=NOW - 5, since=NOW - 3400
        )
    monkeypatch.setenv(names.ENV_STACK, "dev")
    monkeypatch.setattr(entry, "_controller", lambda: controller(fake))
    return fake


def record(name: str) -> dict[str, str]:
    return {"messageId": name, "body": (EVENTS / f"{name}.json").read_text()}


def handle(*records: dict[str, str]) -> list[str]:
    answer = entry.handler({"Records": list(records)}, None)
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


def lines(log: io.StringIO, message: str) -> list[dict[str, Any]]:
    parsed = [json.loads(line) for line in log.getvalue().splitlines()]
    return [line for line in parsed if line["message"] == message]


def test_a_recorded_warning_starts_on_demand_and_says_why(aws: FakeAws, log: io.StringIO) -> None:
    assert handle(record("spot-interruption-warning")) == []
    assert aws.groups["fallback"]["DesiredCapacity"] == 1
    (line,) = lines(log, "decision")
    assert line["group"] == "inference"
    assert line["reason"] == "target 2, 1 primary ready and staying, 1 doomed"
    assert line["actions"] == [
        {"action": "SetDesired", "side": "fallback", "capacity": 1, "reason": line["reason"]}
    ]
    assert (line["ready"], line["doomed"], line["spot"], line["carried_out"]) == (2, 1, 2, True)


@pytest.mark.parametrize(
    "name", ["launch-successful", "launch-unsuccessful", "scheduled", "rebalance-recommendation"]
)
def test_other_payloads_only_wake(aws: FakeAws, name: str) -> None:
    assert handle(record(name)) == []
    assert aws.groups["fallback"]["DesiredCapacity"] == 0


def test_a_whole_batch_is_one_pass_and_each_record_is_read(aws: FakeAws) -> None:
    assert handle(record("scheduled"), record("launch-successful"), record("spot-interruption-warning")) == []
    assert aws.calls["get_parameters_by_path"] == 1
    assert aws.groups["fallback"]["DesiredCapacity"] == 1


def test_a_malformed_message_goes_back_alone(aws: FakeAws) -> None:
    broken = [{"messageId": "text", "body": "no JSON"}, {"messageId": "list", "body": "[]"}]
    assert handle(*broken, record("spot-interruption-warning")) == ["text", "list"]
    assert aws.groups["fallback"]["DesiredCapacity"] == 1


def test_a_group_that_could_not_be_looked_after_sends_all_messages_back(
    aws: FakeAws, log: io.StringIO
) -> None:
    del aws.groups["fallback"]
    assert handle(record("scheduled")) == ["scheduled"]
    (line,) = lines(log, "group not looked after")
    assert "Auto Scaling group 'fallback' does not exist" in line["exception"]


def test_metrics_are_one_namespace_with_the_group_as_dimension(
    aws: FakeAws, capsys: pytest.CaptureFixture[str]
) -> None:
    handle(record("scheduled"))
    emitted = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"_aws"' in line]
    (metric,) = emitted
    (definition,) = metric["_aws"]["CloudWatchMetrics"]
    assert definition["Namespace"] == names.METRIC_NAMESPACE
    assert (metric["group"], metric["stack"], metric["Target"], metric["Ready"], metric["Shortage"]) == (
        "inference",
        "dev",
        [2],
        [2],
        [0],
    )


def test_the_controller_is_built_from_the_deployed_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        names.ENV_QUEUE_URL,
        names.ENV_STACK,
        names.ENV_PARAMETER_ROOT,
        names.ENV_MEMORY_TABLE,
        names.ENV_REGISTRY_TABLE,
    ):
        monkeypatch.setenv(name, f"value of {name}")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    built = entry._controller.__wrapped__()
    assert isinstance(built, Controller)
    assert built.observer.stack == "value of GPU_SPOT_STACK"
    assert built.alarm_clock.queue_url == "value of GPU_SPOT_QUEUE_URL"
    assert built.root == "value of GPU_SPOT_PARAMETER_ROOT"
    assert built.store.table == "value of GPU_SPOT_MEMORY_TABLE"
    assert built.observer.registry.table == "value of GPU_SPOT_REGISTRY_TABLE"
