"""How often a job was interrupted, from what its instances wrote down to what its script is told."""

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
from spot_training.interval import RATE, RATE_VARIABLE
from tests.node.bench import Bench
from tests.node.clocks import FakeClock
from tests.node.metadata import MetadataServer
from userdata.agent.tasks import recording
from userdata.agent.work.training.interruptions import LOOKED_AT, PRIOR, PRIOR_LOSSES, PRIOR_OTHERS, per_hour

TYPE = "g6.xlarge"


def stint(token: int, hours: float, **more: Any) -> JobAttempt:
    begun = JobAttempt(
        token, "a" * 40, f"i-{token}", TYPE, "us-west-2a", "spot", "primary", 0.0, 1000.0, 1000.0
    )
    return replace(begun, seen=1000.0 + hours * 3600, **more)


NOTICE = {"told": 1.0, "cause": "spot", "ended": 2.0, "end": "stopped"}
GIVEN_BACK = {"told": 1.0, "cause": "scale-in", "ended": 2.0, "end": "stopped"}


def rate(before: Sequence[JobAttempt], market: str = "spot", instance_type: str = TYPE) -> float:
    return per_hour(before, "i-new", instance_type, market)


def test_where_nothing_is_known_the_prior_holds_which_the_script_would_take_by_itself() -> None:
    assert rate([]) == PRIOR["spot"] == RATE
    assert rate([], "on-demand") == rate([], "") == PRIOR_OTHERS


@pytest.mark.parametrize("end", [NOTICE, {}, {"end": "host", "ended": 2.0}])
def test_notice_loss_and_host_fault_are_interruptions_and_so_is_silence(end: dict[str, Any]) -> None:
    seen = [stint(token, 1.0, **end) for token in range(1, 17)]
    assert 0.8 < rate(seen) < 1.0


def test_what_was_given_back_only_adds_hours() -> None:
    seen = [stint(token, 10.0, **GIVEN_BACK) for token in range(1, 11)]
    assert rate(seen) < 2 * PRIOR_LOSSES / 100


def test_an_agent_that_begins_again_on_its_instance_has_lost_nothing() -> None:
    twice = [stint(1, 1.0, instance="i-1"), stint(2, 1.0, instance="i-1", **GIVEN_BACK)]
    last = [stint(1, 1.0, instance="i-new")]
    assert rate(twice) < PRIOR["spot"]
    assert rate(last) < PRIOR["spot"]
    assert rate([stint(1, 1.0, instance="i-1")]) > PRIOR["spot"]


def test_a_type_is_told_by_its_own_losses_and_an_unseen_one_by_those_of_its_market() -> None:
    bad = [stint(token, 0.5, **NOTICE) for token in range(1, 11)]
    good = [stint(token, 5.0, instance_type="g6e.xlarge", **GIVEN_BACK) for token in range(11, 21)]
    seen = [*bad, *good]
    of_bad, of_good, unseen = (rate(seen, instance_type=one) for one in (TYPE, "g6e.xlarge", "p5.48xlarge"))
    assert of_good < unseen < of_bad
    assert rate(seen, "on-demand") == PRIOR_OTHERS


class Table:
    """The history of a job: one GetItem each."""

    def __init__(self, *told: JobAttempt) -> None:
        self.items = {(item := attempts.dump("resnet", one))["job"]["S"]: item for one in told}
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

    def market() -> str:
        return "spot"

    return SimpleNamespace(
        config=SimpleNamespace(region="us-west-2", training=SimpleNamespace(job="resnet", job_table="jobs")),
        directory=tmp_path,
        identity=SimpleNamespace(instance="i-new", instance_type=TYPE),
        metadata=SimpleNamespace(market=market),
        clients=SimpleNamespace(dynamodb=lambda region: table),
    )


def test_the_script_saves_by_what_its_job_has_met(tmp_path: Path) -> None:
    table = Table(*(stint(token, 0.25, **NOTICE) for token in range(80, 100)))
    told = recording.told(node(tmp_path, table, 100))
    assert 3.0 < float(told[RATE_VARIABLE]) < 4.0
    assert table.asked == LOOKED_AT
    calm, harsh = Interval(environment={}), Interval(environment=told)
    for one in (calm, harsh):
        one.saved(2.0)
    assert harsh.seconds < calm.seconds / 2


def test_without_an_answer_the_script_is_told_nothing(tmp_path: Path) -> None:
    table = Table()
    table.fails = True
    assert recording.told(node(tmp_path, table, 9)) == {}
    assert Interval(environment=recording.told(node(tmp_path, table, 9))).seconds > 0


def test_the_command_finds_it_in_its_environment(
    tmp_path: Path, clock: FakeClock, metadata_server: MetadataServer
) -> None:
    bench = Bench(tmp_path, clock, metadata_server)
    bench.told = {RATE_VARIABLE: "2.5"}
    trainer = bench.trainer(f"echo ${RATE_VARIABLE} > rate; touch $GPU_SPOT_DONE")
    assert trainer.run() == "done"
    bench.close()
    assert (bench.tmp / "rate").read_text() == "2.5\n"
