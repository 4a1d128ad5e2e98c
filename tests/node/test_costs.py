"""Prices for a job's command, and the page of what its run cost."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from contracts.agent.names import COST_PAGE, LEASE_FILE
from contracts.jobs.attempt import JobAttempt
from tests.node import configs
from tests.node.clocks import FakeClock
from userdata.agent.aws.imds import IdentityDocument
from userdata.agent.machine import files
from userdata.agent.machine.errors import AgentError, LeaseLostError
from userdata.agent.tasks import costs, job, recording
from userdata.agent.tasks.node import Node

PRICES = {"onDemand": {"g6.xlarge": 0.8}, "efsWrite": 0.06, "source": "AWS Price List, 2026-11-24"}
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


class Attempts:
    def __init__(self, *attempts: JobAttempt) -> None:
        self.items = {attempt.token: attempt for attempt in attempts}
        self.fails = False

    def read(self, token: int) -> JobAttempt | None:
        if self.fails:
            raise AgentError("job table jobs: no answer")
        return self.items.get(token)

    def write(self, attempt: JobAttempt) -> None:
        self.items[attempt.token] = attempt


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> Attempts:
    now = clock.wall()
    first = JobAttempt(
        1, configs.REVISION, "i-0", "g6.xlarge", "us-west-2a", "spot", "primary",
        now - 7200, now - 7100, now - 3600, started=now - 7000, starts=1, stopped=now - 3600,
        ended=now - 3600, end="stopped", notice_at=now - 3700, cause="spot",
    )  # fmt: skip
    second = replace(
        first, token=3, instance="i-1", launched=now - 3600, began=now - 3500, started=now - 3400,
        stopped=now, last_seen_at=now, ended=0.0, end="", notice_at=0.0, cause="",
    )  # fmt: skip
    other = replace(first, token=2, revision="f" * 40)
    table = Attempts(first, other, second)
    monkeypatch.setattr(recording, "attempt_table", lambda node, training: table)
    return table


def write(node: Node) -> str:
    files.write_json(node.directory / LEASE_FILE, {"token": 3})
    job.artifacts(node).mkdir(parents=True, exist_ok=True)
    costs.write_page(node, configs.REVISION, "done", lambda: None)
    path = job.artifacts(node) / COST_PAGE
    return path.read_text() if path.exists() else ""


def test_the_page_has_all_attempts_of_the_run(make_node: MakeNode, attempts: Attempts) -> None:
    page = write(make_node())
    assert page.startswith(f"# What resnet cost\n\nRun `{configs.REVISION}`, done, ")
    assert "| spot | g6.xlarge | us-west-2a | 2.00 | $0.62 | $1.60 |" in page
    assert "- 2.00 h elapsed, 0.00 h without an instance\n- 1 interruption; " in page
    assert "- On-Demand prices: AWS Price List, 2026-11-24\n" in page


def test_without_spot_prices_the_page_counts_on_demand(
    make_node: MakeNode, attempts: Attempts, ec2: Ec2
) -> None:
    ec2.problem = "UnauthorizedOperation"
    assert "| 2.00 | up to $1.60 | $1.60 |" in write(make_node())


def test_each_attempt_of_an_instance_has_its_time_only(
    make_node: MakeNode, attempts: Attempts, clock: FakeClock
) -> None:
    """An instance runs one experiment after another; the second one's cost is not the first one's, too."""
    node, launched = make_node(), clock.wall()
    node.__dict__["identity"] = replace(node.identity, launched=launched)
    for token in (4, 5):
        clock.advance(20.0)
        job.record_lease_and_volume(node, token, requested_at=clock.wall())
        clock.advance(100.0)
        recorder = recording.recorder(node, configs.REVISION)
        assert recorder is not None
        recorder.record_start()
        clock.advance(1000.0)
        recording.record_end(node, recorder, "done")
    first, second = attempts.items[4], attempts.items[5]
    assert (first.launched, first.booted, first.began) == (launched, launched + 20, launched + 120)
    assert (second.launched, second.booted) == (first.ended, first.ended + 20)


def test_a_page_that_cannot_be_written_ends_no_run(make_node: MakeNode, attempts: Attempts) -> None:
    attempts.fails = True
    assert write(make_node()) == ""
    attempts.fails = False
    node = make_node()
    (job.artifacts(node) / COST_PAGE).mkdir()
    files.write_json(node.directory / LEASE_FILE, {"token": 3})
    costs.write_page(node, configs.REVISION, "done", lambda: None)


def test_a_lost_lease_is_not_hidden(make_node: MakeNode, attempts: Attempts) -> None:
    def lose() -> None:
        raise LeaseLostError("gone")

    node = make_node()
    files.write_json(node.directory / LEASE_FILE, {"token": 3})
    with pytest.raises(LeaseLostError):
        costs.write_page(node, configs.REVISION, "done", lose)


def test_no_link_of_the_job_is_followed(tmp_path: Path) -> None:
    """The agent is root, and the job's user may write to the directory."""
    root, outside = tmp_path / "data", tmp_path / "outside"
    for directory in (root / "artifacts" / "resnet", outside):
        directory.mkdir(parents=True)
    secret = outside / "shadow"
    secret.write_text("unchanged")
    path = PurePath("artifacts/resnet/page.md")
    (root / path).symlink_to(secret)
    (root / path.parent / f".page.md.{os.getpid()}").symlink_to(secret)
    files.write_below(root, path, "text")
    assert (root / path).read_text() == "text"
    assert not (root / path).is_symlink()
    (root / "artifacts" / "vgg").symlink_to(outside)
    with pytest.raises(NotADirectoryError):
        files.write_below(root, PurePath("artifacts/vgg/page.md"), "text")
    assert sorted(file.name for file in outside.iterdir()) == ["shadow"]
    assert secret.read_text() == "unchanged"
    assert [file.name for file in (root / path).parent.iterdir()] == ["page.md"]
