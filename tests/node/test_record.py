"""What an instance writes down of its time with a job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contracts.agent.names import LEASE_FILE
from contracts.jobs import attempt as attempts
from contracts.jobs.attempt import JobAttempt
from spot_training import Interval
from spot_training.interval import DEFAULT_RATE, RATE_VARIABLE
from tests import models
from tests.node.bench import Bench
from tests.node.configs import FakeClock
from tests.node.job_table import no_answer
from tests.node.jobs import make_tables
from tests.node.node_instances import SharedTables
from userdata.agent.aws.job_attempts import JobAttemptTable
from userdata.agent.machine.errors import AgentError
from userdata.agent.tasks import recording
from userdata.agent.work import notice, worker_report_file
from userdata.agent.work.training.checkpoint_files import newest_checkpoint
from userdata.agent.work.training.interruptions import (
    DEFAULT_PRIOR_PER_HOUR,
    MAX_ATTEMPTS,
    PRIOR_PER_HOUR,
    PRIOR_WEIGHT,
    per_hour,
)
from userdata.agent.work.training.record import WRITE_INTERVAL_SECONDS, Recorder

NEW_ATTEMPT = JobAttempt(
    7, "a" * 40, "i-1", "g6.xlarge", "us-west-2a", "spot", "primary", 900.0, 1000.0, 1000.0
)


class Pages:
    """A store that keeps every write; ``fails``: it does not answer."""

    def __init__(self) -> None:
        self.written: list[JobAttempt] = []
        self.fails = False

    def read(self, token: int) -> JobAttempt | None:
        if self.fails:
            raise AgentError("no answer")
        return next((one for one in reversed(self.written) if one.token == token), None)

    def write(self, attempt: JobAttempt) -> None:
        if self.fails:
            raise AgentError("no answer")
        self.written.append(attempt)


class Case:
    def __init__(self, clock: FakeClock, folder: Path) -> None:
        self.clock, self.folder, self.pages, self.newest = clock, folder, Pages(), 0.0
        self.begin()

    def begin(self, attempt: JobAttempt = NEW_ATTEMPT) -> None:
        self.recorder = Recorder(self.pages, attempt, lambda: self.newest, self.clock, self.folder)

    @property
    def last(self) -> JobAttempt:
        return self.pages.written[-1]

    def work(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.clock.advance(1.0)
            self.recorder.poll()


@pytest.fixture
def case(clock: FakeClock, tmp_path: Path) -> Case:
    return Case(clock, tmp_path)


def test_it_writes_once_a_minute_and_no_more(case: Case) -> None:
    case.recorder.record_start()
    case.work(600)
    assert len(case.pages.written) == 1 + 600 / WRITE_INTERVAL_SECONDS
    assert case.last.last_seen_at == case.clock.wall()
    case.recorder.record_stop()
    case.recorder.record_end("done")
    assert (case.last.end, case.last.stopped, case.last.starts) == ("done", case.clock.wall(), 1)


def test_a_notice_is_written_at_once(case: Case) -> None:
    case.recorder.record_start()
    case.work(5)
    current = replace(notice.from_lifecycle("Terminated", case.clock.wall(), 120.0), kind="spot")
    notice.write(case.folder, current)
    case.work(1)
    assert (case.last.notice_at, case.last.cause) == (current.received_at, "spot")
    case.work(30)
    assert len(case.pages.written) == 2


def test_a_command_that_saves_and_ends_at_once_does_not_hide_the_notice(case: Case) -> None:
    case.recorder.record_start()
    current = replace(notice.from_lifecycle("Terminated", case.clock.wall(), 120.0), kind="spot")
    notice.write(case.folder, current)
    case.recorder.record_stop()  # before anybody looked
    case.recorder.record_end("stopped")
    assert (case.last.notice_at, case.last.cause) == (current.received_at, "spot")


def test_restarts_here_count_what_they_lose_each_by_itself(case: Case) -> None:
    case.recorder.record_start()
    first = case.clock.wall()
    case.work(100)
    case.recorder.record_stop()
    case.work(5)
    case.recorder.record_start()  # from nothing: a hundred seconds were in vain
    case.work(50)
    case.newest = case.clock.wall()
    case.work(20)
    case.recorder.record_stop()
    case.work(5)
    case.recorder.record_start()  # from a checkpoint that is 20 s old
    assert (case.last.lost, case.last.starts, case.last.started) == (pytest.approx(120), 3, first)


def test_an_agent_that_was_started_again_goes_on_with_what_it_wrote(case: Case) -> None:
    case.recorder.record_start()
    case.work(130)
    case.begin(replace(NEW_ATTEMPT, began=case.clock.wall()))
    case.recorder.record_start()
    assert (case.last.starts, case.last.began) == (2, 1000.0)
    assert case.last.lost == pytest.approx(120)  # it was seen at work ten seconds before
    case.begin(replace(NEW_ATTEMPT, token=8))
    case.recorder.record_start()
    assert (case.last.token, case.last.starts) == (8, 1)


def test_a_table_that_does_not_answer_stops_no_work(case: Case) -> None:
    case.pages.fails = True
    case.begin()
    case.recorder.record_start()
    case.work(120)
    case.pages.fails = False
    case.work(61)
    assert case.last.starts == 1
    assert case.last.last_seen_at > NEW_ATTEMPT.began


def test_the_trainer_records_the_start_and_the_end_of_the_command(
    bench: Bench, case: Case, clock: FakeClock, tmp_path: Path
) -> None:
    case.recorder = Recorder(
        case.pages, NEW_ATTEMPT, lambda: newest_checkpoint(bench.checkpoints), clock, tmp_path
    )
    bench.record = case.recorder
    bench.stand_still()
    (bench.checkpoints / "step-1").touch()
    assert bench.trainer("exit 3", restarts=1).run() == "failed"
    assert [(one.starts, one.stopped > 0) for one in case.pages.written] == [
        (1, False),
        (1, True),
        (2, False),
        (2, True),
    ]
    assert case.last.resumed == (bench.checkpoints / "step-1").stat().st_mtime


@pytest.fixture
def table() -> Iterator[JobAttemptTable]:
    with models.moto():
        yield JobAttemptTable(make_tables("jobs"), "jobs", "resnet")


def test_the_table_keeps_the_last_hundred(table: JobAttemptTable) -> None:
    current = replace(NEW_ATTEMPT, started=1767571200.25, notice_at=1767574800.0, cause="spot", end="stopped")
    table.write(current)
    assert table.read(7) == current
    assert table.read(7 + attempts.ATTEMPTS_RETAINED) is None
    table.write(replace(current, token=7 + attempts.ATTEMPTS_RETAINED))
    assert table.read(7) is None


def test_a_foreign_item_is_no_attempt() -> None:
    item = attempts.dump("resnet", NEW_ATTEMPT)
    assert item["job"] == {"S": "resnet#07"}
    for broken in ({}, {**item, "seen": {"S": "x"}}, {**item, "seen": {"N": "x"}}):
        with pytest.raises(ValueError, match="malformed attempt"):
            attempts.parse(broken)


def report(case: Case, **values: object) -> None:
    path = worker_report_file.report_path(case.folder, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))


def start(case: Case) -> None:
    worker_report_file.create_worker_directory(case.folder, 0)
    case.recorder.record_start()


def test_steps_that_a_restart_does_again_are_counted(case: Case) -> None:
    start(case)
    case.work(5)
    assert case.last.step is None
    report(case, step=0, steps=1000)
    case.work(1)
    report(case, step=120, steps=1000, saving=4.0)
    case.work(60)
    assert (case.last.first_step, case.last.step, case.last.saving) == (0, 120, 4.0)
    report(case, step=150, steps=1000, saving=5.0)
    case.recorder.record_stop()
    start(case)
    report(case, step=100, steps=1000, saving=0.0)
    case.work(1)
    report(case, step=1000, steps=1000, saving=2.5)
    case.work(1)
    at = case.clock.wall()
    case.work(30)
    case.recorder.record_stop()
    assert (case.last.first_step, case.last.step, case.last.repeated) == (0, 1000, 50)
    assert (case.last.saving, case.last.exporting) == (7.5, at)


def test_a_start_without_a_report_makes_the_saving_unknown(case: Case) -> None:
    start(case)
    report(case, step=10, steps=1000)
    case.work(1)
    case.recorder.record_stop()
    start(case)
    report(case, step=10, steps=1000, saving=2.0)
    case.work(1)
    case.recorder.record_stop()
    assert (case.last.saving, case.last.repeated) == (None, 0)


@pytest.mark.parametrize("saving", [-1, "x", None, float("nan"), float("inf"), True, 10**30])
def test_a_wrong_report_of_saving_is_none(case: Case, saving: object) -> None:
    start(case)
    report(case, step=10**40 if saving == 10**30 else 7, steps=9, saving=saving)
    case.recorder.record_stop()
    assert case.last.saving is None
    assert case.last.step == (None if saving == 10**30 else 7)


TYPE = "g6.xlarge"


def attempt(token: int, hours: float, **more: Any) -> JobAttempt:
    base = JobAttempt(
        token, "a" * 40, f"i-{token}", TYPE, "us-west-2a", "spot", "primary", 0.0, 1000.0, 1000.0
    )
    return replace(base, last_seen_at=1000.0 + hours * 3600, **more)


NOTICE = {"notice_at": 1.0, "cause": "spot", "ended": 2.0, "end": "stopped"}
GIVEN_BACK = {"notice_at": 1.0, "cause": "scale-in", "ended": 2.0, "end": "stopped"}


def rate(before: Sequence[JobAttempt], market: str = "spot", instance_type: str = TYPE) -> float:
    return per_hour(before, "i-new", instance_type, market)


def test_where_nothing_is_known_the_prior_holds_which_the_script_would_take_by_itself() -> None:
    assert rate([]) == PRIOR_PER_HOUR["spot"] == DEFAULT_RATE
    assert rate([], "on-demand") == rate([], "") == DEFAULT_PRIOR_PER_HOUR


@pytest.mark.parametrize("end", [NOTICE, {}, {"end": "host", "ended": 2.0}])
def test_notice_loss_and_host_fault_are_interruptions_and_so_is_silence(end: dict[str, Any]) -> None:
    seen = [attempt(token, 1.0, **end) for token in range(1, 17)]
    assert 0.8 < rate(seen) < 1.0


def test_what_was_given_back_only_adds_hours() -> None:
    seen = [attempt(token, 10.0, **GIVEN_BACK) for token in range(1, 11)]
    assert rate(seen) < 2 * PRIOR_WEIGHT / 100


def test_an_agent_that_begins_again_on_its_instance_has_lost_nothing() -> None:
    twice = [attempt(1, 1.0, instance="i-1"), attempt(2, 1.0, instance="i-1", **GIVEN_BACK)]
    last = [attempt(1, 1.0, instance="i-new")]
    assert rate(twice) < PRIOR_PER_HOUR["spot"]
    assert rate(last) < PRIOR_PER_HOUR["spot"]
    assert rate([attempt(1, 1.0, instance="i-1")]) > PRIOR_PER_HOUR["spot"]


def test_a_type_has_its_rate_and_an_unknown_type_that_of_its_purchase_option() -> None:
    bad = [attempt(token, 0.5, **NOTICE) for token in range(1, 11)]
    good = [attempt(token, 5.0, instance_type="g6e.xlarge", **GIVEN_BACK) for token in range(11, 21)]
    seen = [*bad, *good]
    of_bad, of_good, unknown = (rate(seen, instance_type=one) for one in (TYPE, "g6e.xlarge", "p5.48xlarge"))
    assert of_good < unknown < of_bad
    assert rate(seen, "on-demand") == DEFAULT_PRIOR_PER_HOUR


def node(tmp_path: Path, table: SharedTables, token: int) -> Any:
    (tmp_path / LEASE_FILE).write_text(json.dumps({"token": token}))

    def purchase_option() -> str:
        return "spot"

    return SimpleNamespace(
        config=SimpleNamespace(region="us-west-2", training=SimpleNamespace(job="resnet", job_table="jobs")),
        directory=tmp_path,
        member="",
        identity=SimpleNamespace(instance="i-new", instance_type=TYPE),
        metadata=SimpleNamespace(purchase_option=purchase_option),
        clients=SimpleNamespace(dynamodb=lambda region: table),
    )


def test_the_script_saves_by_what_its_job_has_met(tmp_path: Path) -> None:
    items = [attempts.dump("resnet", attempt(token, 0.25, **NOTICE)) for token in range(80, 100)]
    asked: list[str] = []
    table = SharedTables({item["job"]["S"]: item for item in items}, point=asked.append)
    variables = recording.history_variables(node(tmp_path, table, 100))
    assert 3.0 < float(variables[RATE_VARIABLE]) < 4.0
    assert asked == ["get"] * MAX_ATTEMPTS
    default, harsh = Interval(environment={}), Interval(environment=variables)
    for one in (default, harsh):
        one.saved(2.0)
    assert harsh.seconds < default.seconds / 2


def test_without_a_response_the_script_gets_no_variable(tmp_path: Path) -> None:
    def fail(operation: str) -> None:
        raise no_answer()

    table = SharedTables(point=fail)
    assert recording.history_variables(node(tmp_path, table, 9)) == {}
    assert Interval(environment=recording.history_variables(node(tmp_path, table, 9))).seconds > 0
