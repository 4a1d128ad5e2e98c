"""The Lambda entry point: recorded payloads in, partial batch response and structured lines out."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from aws_lambda_powertools import Logger
from botocore.exceptions import ClientError

from contracts import names
from contracts.registry import item as registry_item
from contracts.registry.item import Progress
from lambdas.aws.capacity.controller import Controller
from lambdas.aws.capacity.observe import SPOT_REQUEST_ATTEMPTS
from lambdas.aws.capacity.wake_up_messages import RETRY_SECONDS, WakeUpScheduler
from lambdas.aws.passes import MAX_ATTEMPTS
from lambdas.core.capacity.memory import Memory, dump
from lambdas.core.deadline.record import JobRecord
from lambdas.core.money.bill import Bill
from lambdas.handlers import controller as entry
from tests.fakes.aws import FakeAws, config, worker
from tests.lambdas.single_group import NOW, activity, add_ready, controller, declared

EVENTS = Path(__file__).parent.parent / "events"
INTERRUPTED = "i-0000000000000000a"


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> io.StringIO:
    """The handler's log; Powertools binds the stream when the logger is created, before any test captures."""
    stream = io.StringIO()
    monkeypatch.setattr(entry, "logger", Logger(service=request.node.name, stream=stream))
    return stream


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, log: io.StringIO) -> FakeAws:
    fake = declared(target=2, primary=2)
    add_ready(fake, "primary", INTERRUPTED, "i-0000000000000000b")
    monkeypatch.setenv(names.ENV_STACK, "dev")
    monkeypatch.setattr(entry, "_controller", lambda: controller(fake))
    return fake


def record(name: str) -> dict[str, str]:
    return raw(name, (EVENTS / f"{name}.json").read_text())


def raw(name: str, body: str) -> dict[str, str]:
    return {"messageId": name, "receiptHandle": f"handle of {name}", "body": body}


class Remaining:
    """Lambda's context, as far as it is read."""

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


def handle(*records: dict[str, str]) -> list[str]:
    answer = entry.handler({"Records": list(records)}, Remaining())
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


def lines(log: io.StringIO, message: str) -> list[dict[str, Any]]:
    parsed = [json.loads(line) for line in log.getvalue().splitlines()]
    return [line for line in parsed if line["message"] == message]


def test_a_recorded_warning_starts_on_demand_and_says_why(aws: FakeAws, log: io.StringIO) -> None:
    assert handle(record("spot-interruption-warning")) == []
    assert aws.groups["fallback"]["DesiredCapacity"] == 1
    (line,) = lines(log, "decision")
    assert line["group"] == "inference"
    assert line["reason"] == "target 2, 1 primary stable, 1 interrupted"
    assert line["actions"] == [
        {
            "action": "SetDesired",
            "side": "fallback",
            "capacity": 1,
            "reason": line["reason"],
            "zone": "",
            "only_there": False,
        }
    ]
    assert (line["ready"], line["interrupted"], line["spot"], line["carried_out"]) == (2, 1, 2, True)


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


def test_only_malformed_messages_are_returned(aws: FakeAws) -> None:
    bodies = {
        "text": "no JSON",
        "list": "[]",
        "number": '{"detail-type":' + "9" * 5_000 + "}",
        "deep": "[" * 100_000,
    }
    broken = [raw(name, body) for name, body in bodies.items()]
    assert handle(*broken, record("spot-interruption-warning")) == list(bodies)
    assert aws.groups["fallback"]["DesiredCapacity"] == 1
    assert aws.hidden_for == {}  # the queue's own timeout: a retry would fail, too


def test_messages_about_instances_are_redelivered_soon_after_an_error(aws: FakeAws, log: io.StringIO) -> None:
    aws.throttled["describe_auto_scaling_groups"] = MAX_ATTEMPTS
    notices = ["spot-interruption-warning", "rebalance-recommendation"]
    assert handle(record("scheduled"), *map(record, notices)) == notices
    assert aws.hidden_for == {f"handle of {name}": RETRY_SECONDS for name in notices}
    (line,) = lines(log, "group not reconciled")
    assert "Rate exceeded" in line["exception"]
    assert line["attempts"] == MAX_ATTEMPTS
    # The schedule's own message is not needed again; two wake-ups follow it before the next.
    assert aws.delayed == [RETRY_SECONDS, 2 * RETRY_SECONDS]


def test_a_read_that_failed_is_repeated_before_the_next_minute(aws: FakeAws, log: io.StringIO) -> None:
    aws.throttled["describe_spot_instance_requests"] = SPOT_REQUEST_ATTEMPTS
    assert handle(record("scheduled")) == []
    assert aws.delayed == [RETRY_SECONDS, 2 * RETRY_SECONDS]
    (line,) = lines(log, "observation incomplete")
    assert line["read_error"].startswith("Spot requests not read: ")
    assert handle(record("scheduled")) == []
    assert len(aws.delayed) == 2


def test_a_failed_pass_returns_its_messages_as_soon(aws: FakeAws) -> None:
    aws.throttled["get_parameters_by_path"] = MAX_ATTEMPTS
    with pytest.raises(ClientError):
        handle(record("spot-interruption-warning"))
    assert aws.hidden_for == {"handle of spot-interruption-warning": RETRY_SECONDS}


def test_messages_return_even_if_their_visibility_cannot_be_changed(aws: FakeAws, log: io.StringIO) -> None:
    aws.throttled.update({"describe_auto_scaling_groups": MAX_ATTEMPTS, "change_message_visibility_batch": 1})
    assert handle(record("spot-interruption-warning")) == ["spot-interruption-warning"]
    assert lines(log, "retry not scheduled")


@pytest.mark.parametrize("broken", ["groups", "parameter"])
def test_permanent_errors_return_no_message(
    aws: FakeAws, log: io.StringIO, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    if broken == "groups":
        aws.groups.clear()
    else:
        aws.set(target="all")
    assert handle(record("spot-interruption-warning")) == []
    (line,) = lines(log, "group not reconciled")
    assert ("Auto Scaling group 'primary' does not exist" in line["exception"]) is (broken == "groups")
    assert [m["ControllerErrors"] for m in metrics(capsys)] == [[1]]


def test_an_alarm_is_logged_once_and_counted_as_long_as_its_cause_stands(
    aws: FakeAws, log: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    aws.set(target="3")
    aws.groups["primary"]["DesiredCapacity"] = 3
    aws.activities["primary"] = [activity("Failed", "VcpuLimitExceeded", 1)]
    for _ in range(3):
        handle(record("scheduled"))
    assert len(lines(log, "alarm")) == 1
    aws.activities["primary"].insert(0, activity("Successful"))
    handle(record("scheduled"))
    assert [m.get("AlarmCauses") for m in metrics(capsys)] == [[1], [1], [1], None]


def test_an_alarm_is_logged_even_if_an_action_fails(aws: FakeAws, log: io.StringIO) -> None:
    aws.set(target="3")
    aws.groups["fallback"]["DesiredCapacity"] = 1
    aws.activities["fallback"] = [activity("Failed", "VcpuLimitExceeded", 1)]
    aws.throttled["set_desired_capacity"] = 1
    assert handle(record("spot-interruption-warning")) == ["spot-interruption-warning"]
    (alarm,) = lines(log, "alarm")
    assert alarm["kind"] == "fallback-limit"
    assert lines(log, "action failed")


def metrics(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"_aws"' in line]
    return [line for line in lines if "group" in line]


def test_metrics_are_one_namespace_with_the_group_as_dimension(
    aws: FakeAws, capsys: pytest.CaptureFixture[str]
) -> None:
    handle(record("scheduled"))
    (metric,) = metrics(capsys)
    (definition,) = metric["_aws"]["CloudWatchMetrics"]
    assert definition["Namespace"] == names.METRIC_NAMESPACE
    assert (metric["group"], metric["stack"], metric["Target"], metric["Ready"]) == (
        *("inference", "dev"),
        *([2], [2]),
    )
    assert not {"Shortage", names.METRIC_DEADLINE_AT_RISK} & metric.keys()


def test_the_controller_is_built_from_the_deployed_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [
        "QUEUE_URL",
        "STACK",
        "PARAMETER_ROOT",
        "MEMORY_TABLE",
        "REGISTRY_TABLE",
        "INSTANCE_ARNS",
    ]:
        monkeypatch.setenv(f"GPU_SPOT_{variable}", f"value of {variable}")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    built = entry._controller.__wrapped__()
    assert isinstance(built, Controller)
    assert built.observer.stack == "value of STACK"
    assert built.wake_ups.queue_url == "value of QUEUE_URL"
    assert built.root == "value of PARAMETER_ROOT"
    assert built.memory_store.table == "value of MEMORY_TABLE"
    assert built.observer.registry.table == "value of REGISTRY_TABLE"
    assert built.observer.registry.instance_arns == "value of INSTANCE_ARNS"


def test_lambda_does_not_count_a_chain_of_wake_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "DEFAULT_REGION", "LAMBDA_FUNCTION_NAME"):
        monkeypatch.setenv(f"AWS_{variable}", "us-west-2")
    monkeypatch.setenv("_X_AMZN_TRACE_ID", "Root=1-a;Lineage=1:b:15")
    traced: list[bool] = []

    def stop(request: Any, **_: Any) -> None:
        traced.append("X-Amzn-Trace-Id" in request.headers)
        raise InterruptedError

    sqs, ssm = map(entry._client, ("sqs", "ssm"))
    for client in (sqs, ssm):
        client.meta.events.register("before-send", stop)
    with pytest.raises(InterruptedError):
        WakeUpScheduler(sqs, "https://sqs.us-west-2.amazonaws.com/1/queue").schedule(60)
    with pytest.raises(InterruptedError):
        ssm.get_parameter(Name="target")
    assert traced == [False, True]


def job_due(aws: FakeAws, at: float) -> None:
    aws.set(config=config(max=2, breakBeforeMake=True, deadline=at, run="r1"), target="1")


def test_a_missed_deadline_is_logged_once_and_counted_while_it_lasts(
    aws: FakeAws, log: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    job_due(aws, NOW + 3600)
    progress = Progress(
        step=10, steps=1000, reported_at=NOW - 5, first_reported_at=NOW - 3000, rate=0.1, best_rate=0.1
    )
    row = worker(INTERRUPTED, NOW - 3400, NOW - 5, progress=progress)
    aws.slots = [registry_item.dump(row)]
    for _ in range(2):
        assert handle(record("scheduled")) == []
    (line,) = lines(log, "alarm")
    assert line["kind"] == "deadline-lost"
    assert line["reason"].startswith("step 10 of 1000, 2.8 h of work and 1.0 h of time remain")
    # It has an alarm of its own, and is not a refused launch.
    assert [(m[names.METRIC_DEADLINE_AT_RISK], "AlarmCauses" in m) for m in metrics(capsys)] == [
        ([1], False)
    ] * 2


@pytest.mark.parametrize(("hours", "shortage"), [(100, 0), (3, 1)])
def test_a_job_that_waits_for_spot_because_there_is_time_lacks_nothing(
    aws: FakeAws, capsys: pytest.CaptureFixture[str], hours: int, shortage: int
) -> None:
    job_due(aws, NOW + hours * 3600)
    record_of_job = JobRecord("r1", 10, 1000, NOW - 600, "i-gone", 0.1, 0.1)
    aws.remember(dump(Memory(job=record_of_job)))
    aws.groups["primary"].update(DesiredCapacity=1, Instances=[])
    aws.slots.clear()
    handle(record("scheduled"))
    assert aws.groups["fallback"]["DesiredCapacity"] == shortage
    assert [m.get("Shortage", [0]) for m in metrics(capsys)] == [[shortage]]


def test_an_exceeded_budget_is_logged_once_and_counted_while_it_lasts(
    aws: FakeAws, log: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    aws.set(config=config(max=2, breakBeforeMake=True, run="r1", budget=50), target="1")
    aws.remember(dump(Memory(bill=Bill("r1", 50.5, NOW))))
    for _ in range(2):
        assert handle(record("scheduled")) == []
    (line,) = lines(log, "alarm")
    assert line["kind"] == "budget-spent"
    assert line["reason"].startswith("$50.5")
    logged = metrics(capsys)
    assert [(m[names.METRIC_BUDGET_AT_RISK], m.get("AlarmCauses"), m["Target"]) for m in logged] == [
        ([1], None, [0])
    ] * 2


def test_on_demand_alone_for_too_long_is_counted(aws: FakeAws, capsys: pytest.CaptureFixture[str]) -> None:
    aws.remember(dump(Memory(without_spot_since=NOW - 6000)))
    for instance in aws.instances.values():
        instance.pop("InstanceLifecycle", None)
    handle(record("scheduled"))
    [metric] = metrics(capsys)
    assert (metric[names.METRIC_ON_DEMAND_ONLY], metric.get("AlarmCauses")) == ([1], None)
