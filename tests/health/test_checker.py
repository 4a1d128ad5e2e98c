"""A pass of the health checker over AWS: reads, writes, notifications, and errors of AWS."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from botocore.exceptions import EndpointConnectionError

from contracts import names
from contracts.group import health_settings as settings
from contracts.group.health_settings import HealthSettings
from contracts.registry import item as registry_item
from contracts.registry.item import Worker
from contracts.registry.queue_state import QueueState
from contracts.registry.queue_state import dump as queue_row
from contracts.registry.worker_report import WorkerReport
from lambdas.aws.health.checker import HealthOutcome
from lambdas.core.capacity import memory as controllers
from tests.fakes.aws import GROUP, NOW, PLACE, REPORT, ROOT, FakeAws, partition
from tests.health.simulated_group import with_report


def on_premises(host: str, group: str = GROUP, report: WorkerReport = REPORT) -> Worker:
    partition = registry_item.partition(names.on_premises_partition(group), host)
    return Worker(partition, host, 0, NOW, NOW, "ready", report=report)


@pytest.fixture
def aws() -> FakeAws:
    fake = FakeAws()
    fake.add(10)
    fake.checker().run(50)
    return fake


def passes(aws: FakeAws, minutes: int, excluded: frozenset[str] = frozenset()) -> list[HealthOutcome]:
    """Run one pass a minute without heartbeats of excluded instances; return the last outcomes."""
    outcomes: list[HealthOutcome] = []
    for _ in range(minutes):
        aws.now += 60
        aws.send_heartbeats(excluded)
        outcomes = aws.checker().run(50)
    return outcomes


def add_xid_errors(aws: FakeAws, count: int = 1) -> list[str]:
    """Add a critical Xid error to some instances."""
    instance_ids = sorted(aws.instances)[:count]
    for instance_id in instance_ids:
        aws.change(GROUP, instance_id, lambda worker: with_report(worker, xid=79))
    return instance_ids


def test_a_quiet_pass_reads_and_writes_nothing(aws: FakeAws) -> None:
    passes(aws, 1)
    aws.calls.clear()
    [outcome] = passes(aws, 1)
    assert (outcome.errors, outcome.read_errors) == ((), ())
    assert aws.calls == {
        "get_parameters_by_path": 1,
        "describe_instances": 1,
        "batch_get_item": 3,  # the workers and the queue's row, the controller's memory, its own
        "get_item": 1,  # when each service had its turn
        "put_item": 1,
    }


def test_replacement_of_an_instance_that_does_not_report_is_requested_until_it_terminates(
    aws: FakeAws,
) -> None:
    instance_id = sorted(aws.instances)[0]
    passes(aws, 10, excluded=frozenset({instance_id}))
    [(replaced, (at, reason))] = aws.replacement_requests().items()
    assert (replaced, reason) == (instance_id, "silent")
    assert NOW < at < aws.now
    aws.calls.clear()
    passes(aws, 5, excluded=frozenset({instance_id}))
    assert aws.calls["put_parameter"] == 0
    assert aws.calls["describe_auto_scaling_instances"] == 0
    aws.instances[instance_id]["State"]["Name"] = "shutting-down"
    passes(aws, 1)
    assert aws.replacement_requests() == {}


@pytest.mark.parametrize("state", ["Terminating:Wait", "Pending:Wait", "Warmed:Running", "Standby"])
def test_an_instance_that_is_not_in_service_is_exempt(aws: FakeAws, state: str) -> None:
    [instance_id] = add_xid_errors(aws)
    aws.states[instance_id] = state
    passes(aws, 3)
    assert aws.replacement_requests() == {}
    [_, other] = add_xid_errors(aws, 2)  # an exempt instance does not use the budget
    passes(aws, 1)
    assert list(aws.replacement_requests()) == [other]


def test_an_instance_that_the_controller_has_marked_is_exempt(aws: FakeAws) -> None:
    [instance_id] = add_xid_errors(aws)
    for mark in ("termination_deadlines", "termination_requests"):
        memory = replace(controllers.Memory(), **{mark: {instance_id: aws.now}})
        aws.remember(controllers.dump(memory))
        passes(aws, 2)
        assert aws.replacement_requests() == {}, mark
    # Announced for a day in two weeks: AWS itself says that the host is degraded.
    memory = controllers.Memory(retiring={instance_id: aws.now + 14 * 86400})
    aws.remember(controllers.dump(memory))
    passes(aws, 1)
    assert list(aws.replacement_requests()) == [instance_id]


def test_a_restart_of_a_stuck_worker_is_requested(aws: FakeAws) -> None:
    restart_is_requested(aws, 17)


def restart_is_requested(aws: FakeAws, minutes: int) -> None:
    instance_id = sorted(aws.instances)[0]
    for _ in range(minutes):
        aws.now += 60
        aws.send_heartbeats()
        aws.change(GROUP, instance_id, lambda worker: with_report(worker, done=5, rate=0.0))
        item = queue_row(GROUP, QueueState(aws.now - 20, 40, 4, 30.0, 2.0, 2.0, 10))
        aws.rows.setdefault(names.queue_partition(GROUP), {})["queue"] = item
        aws.checker().run(50)
    asked = [key for rows in aws.rows.values() for key, row in rows.items() if "restart" in row]
    assert asked == [f"{instance_id}/0"]
    assert NOW + 900 <= float(aws.rows[partition(instance_id)][f"{instance_id}/0"]["restart"]["N"]) <= aws.now
    assert aws.replacement_requests() == {}


def test_a_malformed_queue_item_is_reported_and_no_worker_counts_as_stuck(aws: FakeAws) -> None:
    aws.rows[names.queue_partition(GROUP)] = {"queue": {"ready": {"S": "many"}}}
    [outcome] = passes(aws, 1)
    assert "malformed item of a queue" in outcome.read_errors[0]
    assert outcome.decision.findings == ()


def test_malformed_worker_items_are_reported_and_no_instance_is_replaced(aws: FakeAws) -> None:
    instance_id = sorted(aws.instances)[0]
    key = registry_item.key(partition(instance_id), instance_id, 0)
    aws.rows[partition(instance_id)][f"{instance_id}/0"] = {**key, "since": {"S": "?"}}
    [outcome] = passes(aws, 60)
    assert outcome.read_errors == ("1 malformed items in the worker registry",)
    assert aws.replacement_requests() == {}


def test_an_on_premises_host_with_an_instance_id_is_ignored(aws: FakeAws) -> None:
    instance_id = sorted(aws.instances)[0]
    aws.add_hosts(GROUP, {instance_id: 1, "gpu-1": 1})
    aws.row(on_premises(instance_id, report=replace(REPORT, xid=79)))
    aws.row(on_premises("gpu-1"))
    aws.row(on_premises("gpu-2"))  # not one of the group's hosts
    [outcome] = passes(aws, 3)
    assert outcome.decision.findings == ()
    assert outcome.decision.summary.ready == {"aws": 10, "on-premises": 1}


def test_an_incident_is_notified_once_when_it_opens_and_once_when_it_is_resolved(aws: FakeAws) -> None:
    add_xid_errors(aws, 10)
    passes(aws, 30)
    assert aws.replacement_requests() == {}
    [(subject, text)] = aws.messages
    assert subject == "dev/inference: common/xid/version sha256:1"
    assert text.startswith(
        "inference in stack dev: 10 of 10 hosts with version sha256:1 have a GPU with a critical Xid error"
    )
    for instance_id in aws.instances:
        aws.change(GROUP, instance_id, lambda worker: with_report(worker, xid=0))
    passes(aws, 30)
    assert [subject for subject, _ in aws.messages[1:]] == [
        "dev/inference: resolved: common/xid/version sha256:1"
    ]


def test_a_failed_notification_is_sent_in_a_later_pass(aws: FakeAws) -> None:
    add_xid_errors(aws, 10)
    aws.refused.add(PLACE.message_target)
    [outcome] = passes(aws, 3)
    assert len(outcome.errors) == 1
    assert aws.messages == []
    aws.refused.clear()
    passes(aws, 3)
    assert len(aws.messages) == 1


def test_what_was_sent_before_a_failed_notification_is_not_sent_again(
    aws: FakeAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, version in zip(add_xid_errors(aws, 10), ["a", "b\a"] * 5, strict=True):
        aws.change(GROUP, name, lambda worker, version=version: with_report(worker, version=version))
    sent: list[str] = []

    def publish(_: FakeAws, Subject: str, **__: str) -> None:  # noqa: N803 - boto3's name
        sent.append(Subject.partition("version ")[2])
        if len(sent) in (2, 3):
            raise EndpointConnectionError(endpoint_url="sns")

    monkeypatch.setattr(FakeAws, "_publish", publish)
    passes(aws, 3)
    assert sent == ["a", "b ", "b ", "b "]


def test_a_failed_write_of_replacement_requests_is_repeated_in_the_next_pass(aws: FakeAws) -> None:
    [instance_id] = add_xid_errors(aws)
    aws.throttled["put_parameter"] = 1
    [outcome] = passes(aws, 1)
    assert len(outcome.errors) == 1
    assert aws.replacement_requests() == {}
    passes(aws, 1)
    assert list(aws.replacement_requests()) == [instance_id]


def test_a_failed_restart_request_is_repeated(aws: FakeAws) -> None:
    aws.throttled["update_item"] = 8  # more than an hour's budget of restarts
    restart_is_requested(aws, 24)
    assert aws.messages == []


def test_of_two_concurrent_copies_only_the_first_acts(aws: FakeAws) -> None:
    add_xid_errors(aws, 10)
    aws.now += 60
    aws.send_heartbeats()
    first, second = aws.checker(), aws.checker()
    load = second.memory_store.load(GROUP)
    first.run(50)
    assert len(aws.messages) == 1

    class Old:
        """The memory as the second copy read it before the first one saved."""

        items = second.memory_store.items

        def prefetched(self, *_: object) -> Old:
            return self

        def load(self, group: str) -> object:
            return load

        def save(self, *arguments: object) -> int:
            return first.memory_store.save(*arguments)  # type: ignore[arg-type]

    outcomes = replace(second, memory_store=Old()).run(50)  # type: ignore[arg-type]
    assert [(o.decision, o.errors) for o in outcomes] == [(None, ())]
    assert len(aws.messages) == 1


def test_if_no_worker_reports_no_instance_is_replaced() -> None:
    aws = FakeAws()
    for name in ("one", "two"):
        aws.add(1, name)
    everybody = frozenset(aws.instances)
    passes(aws, 20, excluded=everybody)
    assert (aws.replacement_requests("one"), aws.replacement_requests("two")) == ({}, {})
    assert [subject for subject, _ in aws.messages] == [
        "dev/one: common/unheard/registry",
        "dev/two: common/unheard/registry",
    ]
    aws.rows.clear()  # or emptied, or another table
    passes(aws, 20)
    assert (aws.replacement_requests("one"), aws.replacement_requests("two")) == ({}, {})


def test_an_error_in_one_service_does_not_affect_the_other(aws: FakeAws) -> None:
    aws.add(2, "broken")
    aws.set("broken", health="{")
    [instance_id] = add_xid_errors(aws)
    outcomes = {outcome.group: outcome for outcome in passes(aws, 1)}
    assert "parameter broken/health" in str(outcomes["broken"].errors[0])
    assert list(aws.replacement_requests()) == [instance_id]


def test_a_group_without_health_settings_is_ignored(aws: FakeAws) -> None:
    aws.parameters = {k: v for k, v in aws.parameters.items() if not k.endswith("/health")}
    assert passes(aws, 1) == []


def decided(aws: FakeAws) -> dict[str, object]:
    """Return the memories of groups."""
    return {key: item for key, item in aws.memory.items() if not key.startswith(names.VISITS)}


def test_a_read_that_fails_changes_nothing(aws: FakeAws) -> None:
    add_xid_errors(aws)
    before = decided(aws)
    aws.throttled["batch_get_item"] = 1
    [outcome] = passes(aws, 1)
    assert (outcome.decision, len(outcome.errors)) == (None, 1)
    assert (decided(aws), aws.replacement_requests()) == (before, {})


def test_malformed_state_is_reported_and_overwritten(aws: FakeAws) -> None:
    key = names.health_memory(GROUP)
    for damaged in ({"memory": {"S": "{"}}, {"version": {"S": "x"}}):
        aws.memory[key] = {**aws.memory[key], **damaged}
        [outcome] = passes(aws, 1)
        assert outcome.read_errors[0].startswith("memory was reset: ")
        [outcome] = passes(aws, 1)
        assert outcome.read_errors == ()


@pytest.mark.parametrize("mode", ["paused", "dry-run"])
def test_in_paused_and_dry_run_mode_no_replacement_is_requested(aws: FakeAws, mode: str) -> None:
    add_xid_errors(aws)
    aws.set(GROUP, control=json.dumps({"mode": mode}))
    passes(aws, 5)
    assert aws.replacement_requests() == {}


def test_in_mode_manual_requests_are_withdrawn_and_workers_still_restarted(aws: FakeAws) -> None:
    for instance_id in sorted(aws.instances)[-3:]:  # more than are replaced at once
        aws.change(GROUP, instance_id, lambda worker: with_report(worker, xid=79))
    passes(aws, 1)
    assert aws.replacement_requests()
    aws.set(GROUP, control=json.dumps({"mode": "manual", "onDemand": 0}))
    restart_is_requested(aws, 17)


def test_the_daily_report_covers_all_services_in_one_message() -> None:
    aws = FakeAws()
    for name in ("ocr", "inference"):
        aws.add(4, name)
        aws.set(name, health=settings.dumps(HealthSettings(daily_report_hour=9)))
    aws.add(1, "quiet")
    aws.add_hosts("ocr", {"gpu-1": 1})
    aws.row(on_premises("gpu-1", "ocr"))
    passes(aws, 59)
    assert aws.messages == []
    passes(aws, 26 * 60 // 4)
    [(subject, text)] = aws.messages
    assert subject == "dev: all services healthy"
    assert text.splitlines()[:4] == [
        "inference: 4 instances, 100 % Spot",
        "  workers (aws): 4 ready, 0 draining, 0 not reporting",
        "  last 24 hours: 0 restarts of a host's workers, 0 replacement requests",
        "  no open incidents",
    ]
    assert "  workers (on-premises): 1 ready, 0 draining, 0 not reporting" in text
    assert "quiet" not in text


def test_parameters_are_where_the_program_declares_them(aws: FakeAws) -> None:
    name = names.group_parameter("dev", GROUP, names.PARAMETER_REPLACEMENT_REQUESTS)
    assert name == f"{ROOT}/{GROUP}/replacements"
    assert name in aws.parameters
