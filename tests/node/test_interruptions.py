"""The interruption rate of a job, from its recorded attempts to the script's variable."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
from tests.node.bench import Bench
from tests.node.clocks import FakeClock
from tests.node.metadata import MetadataServer
from userdata.agent.tasks import recording
from userdata.agent.work.training.interruptions import (
    DEFAULT_PRIOR_PER_HOUR,
    MAX_ATTEMPTS,
    PRIOR_PER_HOUR,
    PRIOR_WEIGHT,
    per_hour,
)

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


class Table:
    """The history of a job: one GetItem each."""

    def __init__(self, *variables: JobAttempt) -> None:
        self.items = {(item := attempts.dump("resnet", one))["job"]["S"]: item for one in variables}
        self.asked = 0
        self.fails = False

    def get_item(self, **asked: Any) -> dict[str, Any]:
        from botocore.exceptions import ReadTimeoutError

        self.asked += 1
        if self.fails:
            raise ReadTimeoutError(endpoint_url="dynamodb")
        item = self.items.get(asked["Key"]["job"]["S"])
        return {"Item": item} if item else {}


def node(tmp_path: Path, table: Table, token: int) -> Any:
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
    table = Table(*(attempt(token, 0.25, **NOTICE) for token in range(80, 100)))
    variables = recording.history_variables(node(tmp_path, table, 100))
    assert 3.0 < float(variables[RATE_VARIABLE]) < 4.0
    assert table.asked == MAX_ATTEMPTS
    default, harsh = Interval(environment={}), Interval(environment=variables)
    for one in (default, harsh):
        one.saved(2.0)
    assert harsh.seconds < default.seconds / 2


def test_without_a_response_the_script_gets_no_variable(tmp_path: Path) -> None:
    table = Table()
    table.fails = True
    assert recording.history_variables(node(tmp_path, table, 9)) == {}
    assert Interval(environment=recording.history_variables(node(tmp_path, table, 9))).seconds > 0


def test_the_command_finds_it_in_its_environment(
    tmp_path: Path, clock: FakeClock, metadata_server: MetadataServer
) -> None:
    bench = Bench(tmp_path, clock, metadata_server)
    bench.variables = {RATE_VARIABLE: "2.5"}
    trainer = bench.trainer(f"echo ${RATE_VARIABLE} > rate; touch $GPU_SPOT_DONE")
    assert trainer.run() == "done"
    bench.close()
    assert (bench.tmp / "rate").read_text() == "2.5\n"
