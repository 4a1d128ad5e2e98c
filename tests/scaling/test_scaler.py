"""A pass of the scaler over AWS: reads, writes, metrics, and errors of AWS."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from contracts import names
from contracts.group import scaling_settings as settings
from contracts.group.scaling_settings import Floor, ScalingSettings
from contracts.registry import item as registry_item
from contracts.registry.item import Worker
from contracts.registry.queue_state import QueueState
from contracts.registry.queue_state import dump as queue_row
from lambdas.aws.passes import StackResources
from lambdas.aws.scaler import ScalerOutcome, build
from lambdas.core.capacity import memory as controllers
from lambdas.core.model import PurchaseOption
from lambdas.core.scaling.model import Reason
from lambdas.handlers import scaler as handler
from tests.fakes.aws import ARNS, GROUP, NOW, REPORT, ROOT, FakeAws, partition

PLACE = StackResources("dev", ROOT, "memory", "registry", ARNS)
SETTINGS = ScalingSettings(1, 16, 2)
WORKER_RATE = 0.5
"""Requests a second of a worker that is always busy."""


@dataclass
class ScalerAws(FakeAws):
    """A group of instances with two workers each, with a new queue state each minute."""

    load: float = 2.0
    waiting_requests: int = 0
    oldest_seconds: float = 0.0
    in_flight: int = 4
    has_queue_state: bool = True
    is_stuck: bool = False
    is_late: bool = False

    def create_group(self, size: int, scaling: ScalingSettings = SETTINGS) -> None:
        for instance_id in self.add(size):
            self.row(
                Worker(partition(instance_id), instance_id, 1, NOW - 7000, NOW - 5, "ready", report=REPORT)
            )
        config = json.loads(self.parameters[f"{ROOT}/{GROUP}/config"])
        self.set(
            GROUP,
            config=json.dumps({**config, "max": scaling.maximum, "slots": {"g5.xlarge": 2}}),
            scaling=settings.dumps(scaling),
        )

    @property
    def target(self) -> int:
        return int(self.parameters[f"{ROOT}/{GROUP}/target"])

    def minute(self) -> ScalerOutcome:
        self.now += 60
        self.send_heartbeats()
        rows = [row for rows in self.rows.values() for row in rows.values() if "pulse" in row]
        working = max(1, len(rows))
        rate = (
            0.0
            if self.is_stuck
            else WORKER_RATE
            if self.waiting_requests
            else min(WORKER_RATE, self.load / working)
        )
        for row in rows:
            row["pulse"]["M"]["rate"] = {"N": str(rate)}
        if self.has_queue_state:
            queue_state = QueueState(
                self.now - 20,
                self.waiting_requests,
                self.in_flight,
                self.oldest_seconds,
                self.load,
                self.load,
                working,
            )
            self.rows[names.queue_partition(GROUP)] = {"queue": queue_row(GROUP, queue_state)}
        [outcome] = build(self.client, PLACE, lambda: self.now).run(50)
        return outcome

    def minutes(self, count: int) -> ScalerOutcome:
        for _ in range(count):
            outcome = self.minute()
            assert outcome.error is None, outcome.error
        return outcome

    def _put_item(self, Item: Any, **more: Any) -> None:  # noqa: N803
        if self.is_late:
            raise ClientError({"Error": {"Code": "ConditionalCheckFailedException"}}, "PutItem")
        super()._put_item(Item, **more)

    def _put_parameter(self, Name: str, **more: Any) -> None:  # noqa: N803
        assert Name == f"{ROOT}/{GROUP}/target"
        super()._put_parameter(Name, **more)


def learned(size: int = 8, scaling: ScalingSettings = SETTINGS) -> ScalerAws:
    """Return a service with measured throughput and an empty queue."""
    aws = ScalerAws()
    aws.create_group(size, scaling)
    aws.load, aws.waiting_requests, aws.oldest_seconds = size * 2 * WORKER_RATE, 200, 400.0
    aws.minutes(3)
    aws.load, aws.waiting_requests, aws.oldest_seconds = 2.0, 0, 0.0
    return aws


def reasons(outcome: ScalerOutcome) -> set[Reason]:
    return set(outcome.decision.reasons)


def test_a_pass_makes_a_fixed_number_of_calls_whatever_the_groups_size() -> None:
    for size in (2, 16):
        aws = learned(size)
        aws.calls.clear()
        aws.minute()
        assert {name: n for name, n in aws.calls.items() if name != "put_parameter"} == {
            "get_parameters_by_path": 1,
            "describe_instances": 1,
            "batch_get_item": 3,  # the workers and the queue's row, the controller's memory, its own
            "get_item": 1,  # when each service had its turn
            "put_item": 2,
        }


def test_the_target_is_written_in_slots_at_once_up_and_after_the_cooldown_down() -> None:
    aws = learned()
    high = aws.target
    assert high > 8  # 200 requests wait
    aws.minutes(5)
    assert aws.target == high  # within the cooldown
    aws.minutes(30)
    low = aws.target
    # 2 requests a second keep 4 workers busy, plus a reserve.
    assert 3 <= low <= 8
    aws.load = 6.0
    assert aws.minute().is_written
    assert aws.target > low


def test_a_dry_run_reports_the_target_and_does_not_write_it() -> None:
    aws = learned(8, replace(SETTINGS, dry_run=True))
    outcome = aws.minutes(30)
    assert aws.calls["put_parameter"] == 0
    assert (outcome.previous_target, outcome.is_written) == (8, False)
    assert outcome.target < 8


def test_on_demand_beyond_the_mix_counts_as_scarce_spot() -> None:
    desired = []
    for base in (0, 8):
        aws = learned(8, replace(SETTINGS, wait_seconds=2))
        config = json.loads(aws.parameters[f"{ROOT}/{GROUP}/config"])
        aws.set(GROUP, config=json.dumps({**config, "base": base}))
        for instance in aws.instances.values():
            del instance["InstanceLifecycle"]
        aws.load = 6.0
        decision = aws.minutes(20).decision
        desired.append(decision.desired)
    scarce, usual = desired
    assert scarce < usual


@pytest.mark.parametrize("state", ["old", "none", "nonsense"])
def test_an_unknown_queue_holds_the_target_and_raises_an_alarm(state: str) -> None:
    aws = learned()
    aws.minutes(30)
    before, aws.has_queue_state = aws.target, False
    row = {"queue": {"ready": {"S": "many"}}} if state == "nonsense" else {}
    if state != "old":
        aws.rows[names.queue_partition(GROUP)] = row
    outcome = aws.minutes(30)
    assert aws.target == before
    assert Reason.QUEUE_UNKNOWN in reasons(outcome)
    assert handler.gauges(outcome, frozenset(reasons(outcome)))[names.METRIC_SCALING_LOAD_UNKNOWN] == 1
    assert bool(outcome.read_errors) == (state == "nonsense")


def test_stale_throughput_holds_the_target_and_raises_an_alarm() -> None:
    aws = learned()
    aws.minutes(30)
    before, aws.is_stuck, aws.load = aws.target, True, 0.5  # requests a second that need fewer workers
    outcome = aws.minutes(40)
    assert aws.target == before
    assert handler.gauges(outcome, frozenset(reasons(outcome)))[names.METRIC_SCALING_THROUGHPUT_UNKNOWN] == 1


def test_a_floor_counts_in_slots() -> None:
    aws = learned(8, replace(SETTINGS, floors=(Floor(7, 0, 1440),)))
    aws.minutes(30)
    assert aws.target == 7


@pytest.mark.parametrize("target", ["9", "5000", "9" * 5000])
def test_a_lowered_maximum_applies_whatever_the_stored_target(target: str) -> None:
    aws = learned()
    aws.set(GROUP, target=target, scaling=settings.dumps(replace(SETTINGS, maximum=3)))
    outcome = aws.minute()
    assert (outcome.error, outcome.previous_target, aws.target) == (None, 3, 3)


def test_workers_on_premises_count_and_their_slots_stay_in_the_target() -> None:
    """The controller subtracts them from what AWS holds."""
    alone, aided = learned(), learned()
    name = names.on_premises_partition(GROUP)
    aided.add_hosts(GROUP, {"gpu-1": 4})
    for slot in range(4):
        row = Worker(
            registry_item.partition(name, "gpu-1"), "gpu-1", slot, NOW, aided.now, "ready", report=REPORT
        )
        aided.row(row)
    for aws in (alone, aided):
        aws.minutes(40)
    assert aided.target == alone.target


def test_the_controllers_boot_time_counts() -> None:
    targets: dict[float, int] = {}
    for boot in (60.0, 900.0):
        aws = learned()
        memory = controllers.dump(replace(controllers.Memory(), boots={PurchaseOption.SPOT: (boot,)}))
        aws.remember(memory)
        aws.load = 4.0
        aws.minutes(30)
        targets[boot] = aws.target
    assert targets[60.0] < targets[900.0]


@pytest.mark.parametrize(
    ("leaf", "text"), [("scaling", "{}"), ("scaling", "no"), ("config", "{}"), ("target", "many")]
)
def test_a_malformed_parameter_is_an_error_that_names_it(leaf: str, text: str) -> None:
    aws = learned()
    aws.set(GROUP, **{leaf: text})
    aws.calls.clear()
    outcome = aws.minute()
    assert f"parameter {GROUP}/{leaf}" in str(outcome.error)
    assert aws.calls["put_parameter"] == 0


@pytest.mark.parametrize("call", ["batch_get_item", "put_item", "put_parameter"])
def test_an_aws_error_changes_nothing_and_the_next_pass_recovers(call: str) -> None:
    aws = learned()
    aws.minutes(30)
    before, aws.load = aws.target, 6.0
    aws.throttled[call] = 1
    assert aws.minute().error is not None
    assert aws.target == before
    assert aws.minute().error is None
    assert aws.target > before


def test_of_two_concurrent_copies_only_one_writes() -> None:
    aws = learned()
    aws.minutes(30)
    before, aws.load, aws.is_late = aws.target, 6.0, True
    late = aws.minute()
    assert (late.decision, late.error, aws.target) == (None, None, before)
    aws.is_late = False
    assert aws.minute().is_written


def test_malformed_state_counts_as_empty_and_nothing_scales_in() -> None:
    aws = learned()
    aws.minutes(30)
    before = aws.target
    aws.memory[names.scaling_memory(GROUP)] = {"group": {"S": "-"}, "version": {"S": "no"}}
    assert aws.minute().error is None
    assert aws.target >= before


def test_each_decision_is_a_log_line_and_metrics(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    aws = learned()
    monkeypatch.setenv(names.ENV_STACK, "dev")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", names.SERVICE_SCALER)
    monkeypatch.setattr(handler, "_scaler", lambda: build(aws.client, PLACE, lambda: aws.now))
    aws.minutes(30)
    handler.handler({}, _Context())
    [decision] = caplog.records
    assert decision.message == "scaling"
    assert {"group": GROUP, "target": aws.target, "written": False}.items() <= vars(decision).items()
    [metrics] = _metrics(capsys)
    assert metrics[names.METRIC_SCALING_TARGET] == [aws.target]
    assert metrics["service"] == names.SERVICE_SCALER
    aws.set(GROUP, scaling="{}")
    handler.handler({}, _Context())
    assert caplog.records[-1].message == "scaling failed"
    assert _metrics(capsys)[-1][names.METRIC_SCALING_ERRORS] == [1]


def _metrics(capsys: pytest.CaptureFixture[str]) -> list[Mapping[str, Any]]:
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [line for line in lines if "_aws" in line and "group" in line]


class _Context:
    def get_remaining_time_in_millis(self) -> int:
        return 55_000
