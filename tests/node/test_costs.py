"""Prices for a job's command, and the time that counts for each attempt."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from contracts.agent import names
from contracts.agent.config import Config, Training
from contracts.limits import NOTICE_SECONDS
from tests.node import configs
from tests.node.bench import Bench
from tests.node.configs import FakeClock
from tests.node.test_record import Pages
from userdata.agent.aws.imds import IdentityDocument
from userdata.agent.machine.background import at_once
from userdata.agent.tasks import costs, job, recording
from userdata.agent.tasks.groups import scheduled
from userdata.agent.tasks.node import Node
from userdata.agent.work import container, process
from userdata.agent.work.failures import faults
from userdata.agent.work.training import job_container, train, variables
from userdata.agent.work.training.train import Trainer

PRICES = {"onDemand": {"g6.xlarge": 0.8}, "efsWrite": 0.06}
EFS = [{"fileSystem": "fs-1", "accessPoint": "fsap-1", "path": "/dltraining/checkpoints"}]


class Ec2:
    """Answers with one price; ``problem``: with an error."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.problem = ""
        self.history: list[tuple[float, str]] = [(0.0, "0.31")]

    def get_paginator(self, name: str) -> Ec2:
        assert name == "describe_spot_price_history"
        return self

    def paginate(self, **asked: Any) -> list[dict[str, Any]]:
        self.asked.append(asked)
        if self.problem:
            raise ClientError({"Error": {"Code": self.problem, "Message": "no"}}, "DescribeSpotPriceHistory")
        prices = [
            {
                "InstanceType": "g6.xlarge",
                "AvailabilityZone": "us-west-2a",
                "SpotPrice": price,
                "Timestamp": datetime.fromtimestamp(at, UTC),
            }
            for at, price in self.history
        ]
        return [{"SpotPriceHistory": prices}]


MakeNode = Callable[..., Node]


@pytest.fixture
def ec2() -> Ec2:
    return Ec2()


@pytest.fixture
def make_node(tmp_path: Path, clock: FakeClock, ec2: Ec2) -> MakeNode:
    def node(option: str = "spot", prices: dict[str, Any] | None = None, *, on_efs: bool = False) -> Node:
        training = {**configs.training()["training"], "prices": PRICES if prices is None else prices}
        more: dict[str, Any] = {"volume": None, "efs": EFS} if on_efs else {"volume": {"sizeGib": 1}}
        made = Node(configs.load(configs.training(training=training, **more)), tmp_path / "run", "http://x")
        made.run_in_background = at_once
        made.__dict__["identity"] = IdentityDocument("i-1", "us-west-2a", "us-west-2", "g6.xlarge")
        made.clock = clock
        if not on_efs:
            made.data = tmp_path / "data"
        made.clients = SimpleNamespace(ec2=lambda region: ec2)

        def purchase_option() -> str:
            return option

        made.metadata = SimpleNamespace(purchase_option=purchase_option)  # type: ignore[assignment]
        return made

    return node


def test_a_spot_instance_costs_what_ec2_says_now(make_node: MakeNode, ec2: Ec2, clock: FakeClock) -> None:
    ec2.history = [(0.0, "0.2"), (100.0, "0.31")]
    assert costs.price_variables(make_node()) == {
        "GPU_SPOT_INSTANCE_DOLLARS_AN_HOUR": "0.31",
        "GPU_SPOT_STORAGE_DOLLARS_A_GIB": "0",
    }
    [asked] = ec2.asked
    assert asked["StartTime"] == asked["EndTime"] == datetime.fromtimestamp(clock.wall(), UTC)


def test_an_on_demand_instance_costs_its_list_price(make_node: MakeNode, ec2: Ec2) -> None:
    assert costs.price_variables(make_node("on-demand"))["GPU_SPOT_INSTANCE_DOLLARS_AN_HOUR"] == "0.8"
    assert not ec2.asked


def test_efs_charges_for_writing(make_node: MakeNode) -> None:
    assert costs.price_variables(make_node(on_efs=True))["GPU_SPOT_STORAGE_DOLLARS_A_GIB"] == "0.06"


def test_an_assumed_price_of_writing_is_said(make_node: MakeNode, caplog: pytest.LogCaptureFixture) -> None:
    prices = {**PRICES, "efsWriteIsAssumed": True}
    for on_efs in (True, False):
        variables = costs.price_variables(make_node(prices=prices, on_efs=on_efs))
        assert variables["GPU_SPOT_STORAGE_DOLLARS_A_GIB"] == ("0.06" if on_efs else "0")
        assert ("price of writing to EFS unknown in this region" in caplog.text) == on_efs
        caplog.clear()


@pytest.mark.parametrize("option", ["", "capacity-block"])
def test_an_unknown_price_is_left_out(make_node: MakeNode, ec2: Ec2, option: str) -> None:
    assert costs.price_variables(make_node(option, {}, on_efs=True)) == {}
    assert costs.price_variables(make_node("on-demand", {}, on_efs=True)) == {}
    ec2.problem = "UnauthorizedOperation"
    assert costs.price_variables(make_node("spot", {}, on_efs=True)) == {}
    ec2.problem, ec2.history = "", []
    assert costs.price_variables(make_node("spot", {}, on_efs=True)) == {}


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Pages:
    table = Pages()
    monkeypatch.setattr(recording, "attempt_table", lambda node, training: table)
    return table


def test_each_attempt_of_an_instance_has_its_time_only(
    make_node: MakeNode, attempts: Pages, clock: FakeClock
) -> None:
    """An instance runs one experiment after another; the second one's cost is not the first one's, too."""
    node, launched = make_node(), clock.wall()
    node.__dict__["identity"] = replace(node.identity, launched=launched)
    for token in (4, 5):
        clock.advance(20.0)
        job.record_lease_and_volume(node, token, requested_at=clock.wall())
        clock.advance(100.0)
        recorder = recording.recorder(node, configs.REVISION)
        recorder.record_start()
        clock.advance(1000.0)
        recording.record_end(node, recorder, "done")
    first, second = (attempts.read(token) for token in (4, 5))
    assert (first.launched, first.booted, first.began) == (launched, launched + 20, launched + 120)
    assert (second.launched, second.booted) == (first.ended, first.ended + 20)


ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/contract.md").read_text("utf-8")
UNIT = (ROOT / "userdata/agent/units" / names.UNIT_RUN).read_text("utf-8")


def rows(heading: str) -> dict[str, str]:
    """The first table below a heading, by its first column."""
    table = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("|")]
    return {cells[0].strip(): " | ".join(cells[1:]).strip() for cells in lines[2:]}


@pytest.fixture
def trainer(bench: Bench) -> Trainer:
    return bench.trainer("true")


@pytest.fixture
def environment(trainer: Trainer) -> dict[str, str]:
    return trainer._environment(3)


def test_the_table_names_each_variable_and_no_other(environment: dict[str, str]) -> None:
    named = {name for cell in rows("The environment") for name in re.findall(r"`([A-Z_]+)`", cell)}
    of_task = {recording.INTERRUPTIONS_VARIABLE, costs.INSTANCE_VARIABLE, costs.STORAGE_VARIABLE}
    of_task |= {variables.LOCAL_VARIABLE, scheduled.RUN_VARIABLE}
    assert named == {*environment, *of_task}


def test_the_values_on_the_page_are_those_that_a_job_gets(environment: dict[str, str]) -> None:
    documented = rows("The environment")
    assert documented["`HOME`"].startswith(f"`{environment['HOME']}`")
    caches = documented["`XDG_CACHE_HOME`, `HF_HOME`, `TORCH_HOME`"]
    assert caches.startswith(f"below `{environment['XDG_CACHE_HOME']}`")
    assert all(
        environment[name].startswith(environment["XDG_CACHE_HOME"]) for name in ("HF_HOME", "TORCH_HOME")
    )
    assert f"`{environment['TMPDIR']}`" in documented["`TMPDIR`"]
    assert (
        f"`{environment['LANG']}`, `{environment['PYTHONUNBUFFERED']}`"
        in documented["`PATH`, `LANG`, `PYTHONUNBUFFERED`"]
    )
    assert documented["`USER`, `LOGNAME`"] == f"`{names.JOB_USER}`"
    assert environment["GPU_SPOT_RESTARTS"] == "3"
    seconds = documented["`TORCH_ELASTIC_SHUTDOWN_TIMEOUT`"]
    assert seconds.startswith(f"`{environment['TORCH_ELASTIC_SHUTDOWN_TIMEOUT']}`: ")


def test_a_jobs_own_environment_overrides_ours_but_not_the_names_of_gpu_spot(trainer: Trainer) -> None:
    ours = trainer._environment(0)
    theirs = dict.fromkeys(ours, "theirs")
    object.__setattr__(trainer._training, "environment", theirs)
    got = trainer._environment(0)
    assert {name for name in got if got[name] == "theirs"} == {
        name for name in ours if not name.startswith("GPU_SPOT_")
    }


def test_the_times_on_the_page_are_the_agents() -> None:
    documented = rows("The time")
    default = Config.__dataclass_fields__["poll_seconds"].default
    assert f"{NOTICE_SECONDS:.0f} s before it takes the instance; heard within {default:.0f} s" in PAGE
    killed = documented["killed with SIGKILL, all that is left"]
    assert killed.startswith(f"{process.GIVE_BACK_SECONDS:.0f} s before that")
    shutdown = documented["a shutdown or `systemctl stop` without a notice"]
    assert shutdown == f"{process.STOP_SECONDS:.0f} s, then killed"
    left = documented["what the command leaves behind when it ends"]
    assert left == f"SIGTERM, {process.LEFTOVER_SECONDS:.0f} s, SIGKILL"
    defaults = {name: field.default for name, field in Training.__dataclass_fields__.items()}
    end = " ".join(f"{key} {value}" for key, value in rows("The end").items())
    assert (
        f"after {faults.MIN_DELAY_SECONDS:.0f} s, then twice as long each time up to "
        f"{faults.MAX_DELAY_SECONDS:.0f} s" in end
    )
    assert f"`maxRestarts` failures in a row (default {defaults['max_restarts']})" in end
    assert f"`stalledAfterMinutes` (default {defaults['stalled_after_minutes']})" in end
    assert f"killed {train._STALL_GRACE_SECONDS:.0f} s later" in end


def test_the_limits_on_the_page_are_the_units() -> None:
    [files] = re.findall(r"^LimitNOFILE=(\d+)$", UNIT, re.M)
    assert f"{int(files):,} open files, unlimited pinned memory and tasks, no core dumps" in PAGE
    assert {"LimitMEMLOCK=infinity", "TasksMax=infinity", "LimitCORE=0"} <= set(UNIT.splitlines())


def test_a_container_has_the_same_limits_and_the_shares_on_the_page() -> None:
    [files] = re.findall(r"^LimitNOFILE=(\d+)$", UNIT, re.M)
    assert set(container.LIMITS) == {f"nofile={files}:{files}", "memlock=-1:-1", "core=0"}
    assert container.SHARED_MEMORY_SHARE == 0.5
    assert f"capped at {job_container._MEMORY_LIMIT_SHARE:.0%}".replace("%", " %") in PAGE
    assert {"PATH", "USER"} <= set(job_container._HOST_VARIABLES)


def test_the_shortest_script_is_python() -> None:
    [script, loader] = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    compile(script, "contract.md", "exec")
    compile(loader, "contract.md", "exec")
