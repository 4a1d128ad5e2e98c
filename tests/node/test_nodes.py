"""A job of several nodes on an instance: its lease, its variables, its end and its failures."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from contracts.stored import ContractError
from tests.node import configs
from tests.node.clocks import FakeClock
from tests.node.jobs import write_notice
from tests.node.node_instances import MOUNTS, SharedTables, instance
from tests.node.test_without_volume import CHECKPOINTS, MountHost
from userdata.agent import tasks
from userdata.agent.lease.experiment_selection import ExperimentLease
from userdata.agent.tasks import holding
from userdata.agent.tasks import job as job_tasks
from userdata.agent.tasks.groups.nodes import ready_leases

Report = Mapping[str, Any]
FINISHED: Report = {"step": 9, "steps": 9, "finished": True}


class Host(MountHost):
    def unmount(self, path: Path) -> None:
        self.at.remove(str(path))


class Ended:
    """A command that has ended."""

    pid = 2**30  # unused

    def __init__(self, code: int = 0) -> None:
        self.code = code

    def poll(self) -> int:
        return self.code


Make = Callable[[str], tasks.Node]


@pytest.fixture(autouse=True)
def _disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mount point is not on this machine."""
    monkeypatch.setattr("userdata.agent.work.failures.inspection.check_writable", lambda path: ("", False))


@pytest.fixture
def tables() -> SharedTables:
    return SharedTables()


@pytest.fixture
def make(tables: SharedTables, clock: FakeClock, tmp_path: Path) -> Make:
    def made(name: str) -> tasks.Node:
        nodes = {"min": 2, "max": 3}
        return instance(tables, f"i-{name}", tmp_path / name, clock, Host(), nodes=nodes, maxRestarts=2)

    return made


def lend(tables: SharedTables, name: str, until: float) -> None:
    """Let another instance have a node's lease."""
    item = {"job": {"S": name}, "holder": {"S": "i-other"}, "leaseUntil": {"N": str(int(until))}}
    tables.put_item(Item=item)


def runs(one: tasks.Node, *reports: Report | None, code: int = 0) -> list[dict[str, str]]:
    """Let each start of the command end with a report; return the variables of the starts."""
    starts: list[dict[str, str]] = []

    def spawn(argv: Any, env: dict[str, str], cwd: Path) -> Any:
        assert len(starts) < len(reports), "started once more"
        report = reports[len(starts)]
        starts.append(env)
        if report is not None:
            Path(env["GPU_SPOT_TELL"]).write_text(json.dumps(report))
        return Ended(code)

    one.spawn = spawn
    return starts


def test_an_instance_is_a_node_under_its_lease_and_ends_the_job(make: Make, tables: SharedTables) -> None:
    one = make("one")
    starts = runs(one, FINISHED)
    assert tasks.run(one) == 0
    [env] = starts
    assert env["SPOT_TRAINING_NODES"] == "2:3"
    name = env["SPOT_TRAINING_NODE"]
    assert name in ("resnet-node-0", "resnet-node-1", "resnet-node-2")
    assert (env["GPU_SPOT_JOB"], env["GPU_SPOT_CHECKPOINTS"]) == ("resnet", CHECKPOINTS)
    assert tables.item("resnet")["state"] == {"S": "done"}
    assert tables.item("resnet")["nodes"] == {"M": {"min": {"N": "2"}, "max": {"N": "3"}}}
    assert tables.item(name)["token"] == {"N": "1"}
    assert "holder" not in tables.item(name)
    assert tables.item(f"{name}#01")["revision"] == {"S": configs.REVISION}
    assert "holder" not in tables.item("resnet")
    assert set(tables.finished) == {configs.REVISION}
    assert ["shutdown", "--poweroff", "+10"] in one.host.ran  # type: ignore[attr-defined]


def test_a_node_without_rank_0_waits_for_the_one_with_it(
    make: Make, tables: SharedTables, clock: FakeClock
) -> None:
    one = make("one")
    lend(tables, "resnet-node-1", clock.wall() + 10_000)
    starts = runs(one, {**FINISHED, "rank": 1})
    started_at, other = clock.wall(), job_tasks.member(make("other"), "resnet-node-1")

    def export(seconds: float) -> None:
        assert "holder" not in tables.item(starts[0]["SPOT_TRAINING_NODE"]) if starts else True
        if clock.wall() - started_at > 300:
            job_tasks.jobs(other).mark("done")

    clock.on_sleep = export
    assert tasks.run(one) == 0
    assert len(starts) == 1
    assert clock.wall() - started_at > 300
    assert tables.item("resnet")["state"] == {"S": "done"}
    assert tables.item(starts[0]["SPOT_TRAINING_NODE"])["state"] == {"S": "done"}


def test_if_rank_0_is_lost_in_its_export_another_node_repeats_it(
    make: Make, tables: SharedTables, clock: FakeClock
) -> None:
    one = make("one")
    lend(tables, "resnet-node-1", clock.wall() + 120)
    starts = runs(one, {**FINISHED, "rank": 1}, FINISHED)
    began = clock.wall()
    assert tasks.run(one) == 0
    assert len(starts) == 2
    assert 120 < clock.wall() - began < 240
    assert tables.item("resnet")["state"] == {"S": "done"}


def test_more_instances_than_nodes_stand_by(make: Make, tables: SharedTables, clock: FakeClock) -> None:
    one = make("one")
    for number in range(3):
        lend(tables, f"resnet-node-{number}", clock.wall() + 500 + 100 * number)
    starts, began = runs(one, FINISHED), clock.wall()
    assert tasks.run(one) == 0
    assert starts[0]["SPOT_TRAINING_NODE"] == "resnet-node-0"
    assert 500 < clock.wall() - began < 600


def test_nodes_that_fail_alike_are_one_failure(make: Make, tables: SharedTables, clock: FakeClock) -> None:
    one, two = make("one"), make("two")
    for machine in (one, two):
        handlers: list[Callable[[], None]] = []
        machine.on_sigterm = handlers.append
        starts: list[dict[str, str]] = []

        def spawn(argv: Any, env: Any, cwd: Path, starts: Any = starts, handlers: Any = handlers) -> Any:
            starts.append(env)
            if len(starts) == 3:
                handlers[-1]()
            return Ended(1)

        machine.spawn = spawn
        assert tasks.run(machine) == 0
        assert len(starts) == 3
    assert tables.item("resnet")["state"] == {
        "S": "running"
    }  # two failures of three allowed, on each of two nodes
    starts = runs(one, None, None, None, code=1)
    one.on_sigterm = lambda act: None
    assert tasks.run(one) == 0
    assert tables.item("resnet")["state"] == {"S": "failed"}
    assert tables.item("resnet")["reason"] == {"S": "exit code 1"}
    two.spawn = lambda *_: pytest.fail("the job has failed")
    assert tasks.run(two) == 0


def test_a_node_that_ends_without_a_report_has_failed(make: Make, tables: SharedTables) -> None:
    one = make("one")
    runs(one, None, {"step": 3}, {"step": 9, "steps": 9})
    assert tasks.run(one) == 0
    assert tables.item("resnet")["state"] == {"S": "failed"}
    assert 'without a report {"finished": true}' in tables.item("resnet")["reason"]["S"]


def test_a_node_with_a_notice_is_no_failure(make: Make, tables: SharedTables, clock: FakeClock) -> None:
    one = make("one")

    def spawn(argv: Any, env: dict[str, str], cwd: Path) -> Any:
        write_notice(one.directory, clock)  # the script has read it before the agent was signalled
        return Ended()

    one.spawn = spawn
    assert tasks.run(one) == 0
    assert tables.item("resnet")["state"] == {"S": "running"}
    assert all("holder" not in tables.item(f"resnet-node-{number}") for number in range(3))


def test_faulty_hosts_of_several_nodes_are_not_in_a_row(make: Make, tables: SharedTables) -> None:
    one = make("one")
    counts = [
        job_tasks.jobs(job_tasks.member(one, f"resnet-node-{number}")).count_host_fault(0.0)
        for number in (0, 1, 2, 0)
    ]
    assert counts == [1, 1, 1, 2]
    assert "hostFaults" not in tables.item("resnet")


def test_a_restarted_agent_goes_on_as_the_node_that_it_was(make: Make, tables: SharedTables) -> None:
    one = make("one")
    member = job_tasks.member(one, "resnet-node-2")
    assert holding.try_acquire(member)
    assert job_tasks.current_job(one).member == "resnet-node-2"
    starts = runs(one, FINISHED)
    assert tasks.run(one) == 0
    assert starts[0]["SPOT_TRAINING_NODE"] == "resnet-node-2"


def ready(leases: dict[str, ExperimentLease], me: str = "i-me") -> list[str]:
    seen = ready_leases(leases, me, 100.0)
    return [name for name, lease in seen.items() if lease.is_available(me, 100.0)]


def test_after_an_end_none_starts_while_rank_0_exports_and_one_repeats_a_lost_export() -> None:
    ended, free = ExperimentLease(is_finished=True), ExperimentLease()
    works, lost = (
        ExperimentLease(holder="i-1", expires_at=200.0),
        ExperimentLease(holder="i-1", expires_at=99.0),
    )
    assert ready({"a": works, "b": free, "c": free}) == ["b", "c"]
    assert ready({"a": works, "b": ended, "c": free}) == []
    assert ready({"a": lost, "b": ended, "c": free}) == ["a"]
    assert ready({"a": free, "b": ended, "c": works}, "i-1") == ["c"]  # a restarted agent
    assert ready({"a": ended, "b": ended}) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"nodes": {"min": 3, "max": 2}}, "min 3"),
        ({"nodes": {"max": 65}}, "65"),
        ({"nodes": {"max": 2}, "study": {"trials": 2}}, "nodes: allowed without"),
        ({"nodes": {"max": 2}, "artifacts": "s3://bucket/a/"}, "nodes: allowed without"),
    ],
)
def test_what_does_not_work_is_refused(changes: dict[str, Any], says: str) -> None:
    training = {**configs.training()["training"], **changes}
    with pytest.raises(ContractError, match=says):
        configs.load(configs.training(volume=None, efs=MOUNTS, training=training))


def test_a_volume_is_refused() -> None:
    training = {**configs.training()["training"], "nodes": {"max": 2}}
    with pytest.raises(ContractError, match=r"training\.nodes: allowed without volume only"):
        configs.load(configs.training(training=training))
