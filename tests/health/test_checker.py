"""The checker's pass over AWS: what it reads, writes and says, and what it does when AWS fails it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.functions import health as bench
from contracts import names
from contracts.group import health_settings as settings
from contracts.group.health_settings import HealthSettings
from contracts.registry.item import Worker
from contracts.registry.queue_state import Backlog
from contracts.registry.queue_state import dump as queue_row
from lambdas.aws.health.checker import HealthOutcome
from lambdas.core.capacity import memory as controllers
from tests.health.fake_aws import GROUP, NOW, PLACE, PULSE, ROOT, HealthAws, told

ELSEWHERE = names.on_premises_partition(GROUP)


@pytest.fixture
def aws() -> HealthAws:
    made = HealthAws()
    made.add(10)
    made.checker().run(50)
    return made


def passes(aws: HealthAws, minutes: int, but: frozenset[str] = frozenset()) -> list[HealthOutcome]:
    """Let time pass; everybody is well but some. Return the outcomes of the last pass."""
    outcomes: list[HealthOutcome] = []
    for _ in range(minutes):
        aws.now += 60
        aws.beat(but)
        outcomes = aws.checker().run(50)
    return outcomes


def ill(aws: HealthAws, count: int = 1) -> list[str]:
    """Give some instances a grave Xid."""
    found = sorted(aws.instances)[:count]
    for one in found:
        aws.change(GROUP, one, lambda worker: told(worker, xid=79))
    return found


def test_a_quiet_pass_reads_and_writes_nothing(aws: HealthAws) -> None:
    passes(aws, 1)
    aws.calls.clear()
    [outcome] = passes(aws, 1)
    assert (outcome.errors, outcome.troubles) == ((), ())
    assert aws.calls == {
        "get_parameters_by_path": 1,
        "describe_instances": 1,
        "query": 2,
        "get_item": 3,  # the queue's row, the controller's memory, its own
    }


def test_who_is_silent_is_wished_for_until_it_is_gone(aws: HealthAws) -> None:
    one = sorted(aws.instances)[0]
    passes(aws, 10, but=frozenset({one}))
    [(wished, (at, reason))] = aws.wishes().items()
    assert (wished, reason) == (one, "silent")
    assert NOW < at < aws.now
    aws.calls.clear()
    passes(aws, 5, but=frozenset({one}))
    assert aws.calls["put_parameter"] == 0
    assert aws.calls["describe_auto_scaling_instances"] == 0
    aws.instances[one]["State"]["Name"] = "shutting-down"
    passes(aws, 1)
    assert aws.wishes() == {}


@pytest.mark.parametrize("state", ["Terminating:Wait", "Pending:Wait", "Warmed:Running", "Standby"])
def test_who_is_not_in_service_is_left_to_its_group(aws: HealthAws, state: str) -> None:
    [one] = ill(aws)
    aws.states[one] = state
    passes(aws, 3)
    assert aws.wishes() == {}
    [_, other] = ill(aws, 2)  # the budget is for who can be helped
    passes(aws, 1)
    assert list(aws.wishes()) == [other]


def test_whom_the_controller_has_marked_is_left_to_it(aws: HealthAws) -> None:
    for mark in ("doomed", "released", "retiring"):
        [one] = ill(aws)
        memory = replace(controllers.Memory(), **{mark: {one: aws.now}})
        text = controllers.dump(memory)
        aws.memory[GROUP] = {"group": {"S": GROUP}, "version": {"N": "1"}, "memory": {"S": text}}
        passes(aws, 2)
        assert aws.wishes() == {}, mark


def test_a_stuck_worker_is_asked_to_start_anew(aws: HealthAws) -> None:
    one = sorted(aws.instances)[0]
    for _ in range(17):
        aws.now += 60
        aws.beat()
        aws.change(GROUP, one, lambda worker: told(worker, done=5, rate=0.0))
        item = queue_row(GROUP, Backlog(aws.now - 20, 40, 4, 30.0, 2.0, 2.0, 10))
        aws.rows.setdefault(names.queue_partition(GROUP), {})["queue"] = item
        aws.checker().run(50)
    asked = [key for key, row in aws.rows[GROUP].items() if "restart" in row]
    assert asked == [f"{one}/0"]
    assert NOW + 900 <= float(aws.rows[GROUP][f"{one}/0"]["restart"]["N"]) <= aws.now
    assert aws.wishes() == {}


def test_a_queue_row_that_makes_no_sense_is_told_and_nobody_is_stuck(aws: HealthAws) -> None:
    aws.rows[names.queue_partition(GROUP)] = {"queue": {"ready": {"S": "many"}}}
    [outcome] = passes(aws, 1)
    assert "malformed item of a queue" in outcome.troubles[0]
    assert outcome.decision is not None
    assert outcome.decision.findings == ()


def test_rows_that_make_no_sense_are_told_and_cost_nobody_its_instance(aws: HealthAws) -> None:
    one = sorted(aws.instances)[0]
    aws.rows[GROUP][f"{one}/0"] = {"group": {"S": GROUP}, "worker": {"S": f"{one}/0"}, "since": {"S": "?"}}
    [outcome] = passes(aws, 60)
    assert outcome.troubles == ("1 malformed rows in the worker registry",)
    assert aws.wishes() == {}


def test_a_machine_that_calls_itself_as_an_instance_is_none(aws: HealthAws) -> None:
    one = sorted(aws.instances)[0]
    aws.row(Worker(ELSEWHERE, one, 0, NOW, NOW, "ready", pulse=replace(PULSE, xid=79)))
    aws.row(Worker(ELSEWHERE, "gpu-1", 0, NOW, NOW, "ready", pulse=PULSE))
    [outcome] = passes(aws, 3)
    assert outcome.decision is not None
    assert outcome.decision.findings == ()
    assert outcome.decision.facts.ready == {"aws": 10, "on-premises": 1}


def test_people_hear_once_that_something_began_and_once_that_it_is_over(aws: HealthAws) -> None:
    ill(aws, 10)
    passes(aws, 30)
    assert aws.wishes() == {}
    [(subject, text)] = aws.messages
    assert subject == "dev/inference: common/xid/version sha256:1"
    assert text.startswith(
        "inference in stack dev: 10 of 10 with version sha256:1 have a GPU with a grave Xid"
    )
    for one in aws.instances:
        aws.change(GROUP, one, lambda worker: told(worker, xid=0))
    passes(aws, 30)
    assert [subject for subject, _ in aws.messages[1:]] == [
        "dev/inference: over: common/xid/version sha256:1"
    ]


def test_a_message_that_cannot_be_sent_is_sent_once_it_can(aws: HealthAws) -> None:
    ill(aws, 10)
    aws.refused.add(PLACE.topic)
    [outcome] = passes(aws, 3)
    assert len(outcome.errors) == 1
    assert aws.messages == []
    aws.refused.clear()
    passes(aws, 3)
    assert len(aws.messages) == 1


def test_a_wish_that_cannot_be_written_is_written_in_the_next_pass(aws: HealthAws) -> None:
    [one] = ill(aws)
    aws.throttled["put_parameter"] = 1
    [outcome] = passes(aws, 1)
    assert len(outcome.errors) == 1
    assert aws.wishes() == {}
    passes(aws, 1)
    assert list(aws.wishes()) == [one]


def test_a_worker_that_could_not_be_asked_is_asked_again(aws: HealthAws) -> None:
    aws.throttled["update_item"] = 1
    test_a_stuck_worker_is_asked_to_start_anew(aws)


def test_of_two_copies_that_see_the_same_one_acts(aws: HealthAws) -> None:
    ill(aws, 10)
    aws.now += 60
    aws.beat()
    first, second = aws.checker(), aws.checker()
    load = second.store.load(GROUP)
    first.run(50)
    assert len(aws.messages) == 1

    class Old:
        """The memory as the second copy had read it before the first one saved."""

        def load(self, group: str) -> object:
            return load

        def save(self, *given: object) -> int:
            return first.store.save(*given)  # type: ignore[arg-type]

    outcomes = replace(second, store=Old()).run(50)  # type: ignore[arg-type]
    assert [(o.decision, o.errors) for o in outcomes] == [(None, ())]
    assert len(aws.messages) == 1


def test_a_registry_in_which_nobody_is_heard_is_nobodys_fault() -> None:
    aws = HealthAws()
    for name in ("one", "two"):
        aws.add(1, name)
    everybody = frozenset(aws.instances)
    passes(aws, 20, but=everybody)
    assert (aws.wishes("one"), aws.wishes("two")) == ({}, {})
    assert [subject for subject, _ in aws.messages] == [
        "dev/one: common/unheard/registry",
        "dev/two: common/unheard/registry",
    ]
    aws.rows.clear()  # or emptied, or another table
    passes(aws, 20)
    assert (aws.wishes("one"), aws.wishes("two")) == ({}, {})


def test_what_is_wrong_with_one_service_does_not_touch_the_other(aws: HealthAws) -> None:
    aws.add(2, "broken")
    aws.set("broken", health="{")
    [one] = ill(aws)
    outcomes = {outcome.group: outcome for outcome in passes(aws, 1)}
    assert "parameter broken/health" in str(outcomes["broken"].errors[0])
    assert list(aws.wishes()) == [one]


def test_a_group_without_settings_for_it_is_none_of_its_business(aws: HealthAws) -> None:
    aws.parameters = {k: v for k, v in aws.parameters.items() if not k.endswith("/health")}
    assert passes(aws, 1) == []


def test_a_read_that_fails_changes_nothing(aws: HealthAws) -> None:
    ill(aws)
    before = dict(aws.memory)
    for call in ("query", "get_item"):
        aws.throttled[call] = 1
        [outcome] = passes(aws, 1)
        assert (outcome.decision, len(outcome.errors)) == (None, 1)
        assert (aws.memory, aws.wishes()) == (before, {})


def test_a_memory_that_cannot_be_read_is_told_and_written_anew(aws: HealthAws) -> None:
    key = names.health_memory(GROUP)
    for damaged in ({"memory": {"S": "{"}}, {"version": {"S": "x"}}):
        aws.memory[key] = {**aws.memory[key], **damaged}
        [outcome] = passes(aws, 1)
        assert outcome.troubles[0].startswith("what was remembered is lost")
        [outcome] = passes(aws, 1)
        assert outcome.troubles == ()


@pytest.mark.parametrize("mode", ["paused", "dry-run"])
def test_where_people_have_taken_over_nothing_is_wished(aws: HealthAws, mode: str) -> None:
    ill(aws)
    aws.set(GROUP, control=json.dumps({"mode": mode}))
    passes(aws, 5)
    assert aws.wishes() == {}


def test_the_daily_message_is_one_for_all_services() -> None:
    aws = HealthAws()
    for name in ("ocr", "inference"):
        aws.add(4, name)
        aws.set(name, health=settings.dumps(HealthSettings(digest=9)))
    aws.add(1, "quiet")
    aws.row(Worker(names.on_premises_partition("ocr"), "gpu-1", 0, NOW, NOW, "ready", pulse=PULSE))
    passes(aws, 59)
    assert aws.messages == []
    passes(aws, 26 * 60 // 4)
    [(subject, text)] = aws.messages
    assert subject == "dev: all is well"
    assert text.splitlines()[:4] == [
        "inference: 4 instances, 100 % of them spot",
        "  workers (aws): 4 ready, 0 draining, 0 silent",
        "  in the last day: 0 times a host's workers were restarted, 0 instances were to be replaced",
        "  nothing needs you",
    ]
    assert "  workers (on-premises): 1 ready, 0 draining, 0 silent" in text
    assert "quiet" not in text


def test_calls_grow_with_pages_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "health.json"
    assert bench.main(["--out", str(out), "--sizes", "10", "1000", "1500"]) == 0
    scenes = json.loads(out.read_text())["scenes"]
    quiet = scenes["quiet"]
    assert quiet["10"]["calls_total"] == quiet["1000"]["calls_total"] == quiet["1500"]["calls_total"] - 2
    assert scenes["a tenth ill"]["1500"]["wishes"] == 40
    assert "1500" in capsys.readouterr().out


def test_a_bench_that_grows_says_so() -> None:
    found = bench.figures([10])
    found["quiet"]["20"] = found["quiet"]["10"] | {"calls_beyond_further_pages": 9}
    found["a tenth ill"]["10"]["memory_bytes"] = 500_000
    assert len(bench.broken(found)) == 2


def test_parameters_are_where_the_program_declares_them(aws: HealthAws) -> None:
    assert names.group_parameter("dev", GROUP, names.PARAMETER_WISHES) == f"{ROOT}/{GROUP}/wishes"
    assert f"{ROOT}/{GROUP}/wishes" in aws.parameters
