"""A job of several nodes on an instance: its lease, its variables, its end and its failures."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from contracts.registry import item as registry_item
from contracts.registry.item import Worker
from contracts.stored import ContractError
from tests.node import configs
from tests.node.configs import FakeClock
from tests.node.jobs import write_notice
from tests.node.node_instances import MOUNTS, SharedTables, instance
from tests.node.test_registry import empty_registry
from tests.node.test_without_volume import CHECKPOINTS, MountHost
from userdata.agent import tasks
from userdata.agent.aws import clients
from userdata.agent.aws.own_host import OnPremisesHost
from userdata.agent.lease.experiment_selection import ExperimentLease
from userdata.agent.machine.background import at_once
from userdata.agent.machine.errors import AgentError, ConfigError
from userdata.agent.tasks import holding
from userdata.agent.tasks import job as job_tasks
from userdata.agent.tasks.diagnosis import diagnose
from userdata.agent.tasks.groups.nodes import ready_leases
from userdata.agent.tasks.node import Node

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
        ({"nodes": {"min": 3, "max": 2}}, r"nodes\.min must be at most nodes\.max \(2\), not 3"),
        ({"nodes": {"max": 65}}, "65"),
        ({"nodes": {"max": 2}, "artifacts": "s3://bucket/a/"}, "nodes cannot be set with"),
    ],
)
def test_what_does_not_work_is_refused(changes: dict[str, Any], says: str) -> None:
    training = {**configs.training()["training"], **changes}
    with pytest.raises(ContractError, match=says):
        configs.load(configs.training(volume=None, efs=MOUNTS, training=training))


def test_a_volume_is_refused() -> None:
    training = {**configs.training()["training"], "nodes": {"max": 2}}
    with pytest.raises(ContractError, match=r"training\.nodes cannot be set with volume"):
        configs.load(configs.training(training=training))


NOWHERE = "http://127.0.0.1:1"
"""Where a metadata service would be asked for."""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-07")
    with empty_registry() as client:
        yield client


def rows(client: Any) -> list[Worker]:
    found = client.scan(TableName="registry", ConsistentRead=True)["Items"]
    return [registry_item.parse(item) for item in found]


def host(tmp_path: Path, clock: FakeClock, *command: str) -> Node:
    service = {"command": list(command), "gpus": 2}
    config = configs.service(group="ocr", service=service, hooks=None, onPremises=True, nvidia=False)
    made = Node(configs.load(config), tmp_path, NOWHERE)
    made.run_in_background = at_once
    made.clock = clock
    return made


def test_on_premises_workers_register_separately_and_drain_on_sigterm(
    registry: Any, tmp_path: Path, clock: FakeClock
) -> None:
    made = host(tmp_path, clock, "sh", "-c", "env >$GPU_SPOT_TELL.env; exec sleep 60")
    seen: list[list[Worker]] = []
    stops: list[Callable[[], None]] = []
    made.on_sigterm = stops.append

    def on_sleep(seconds: float) -> None:
        time.sleep(0.002)  # the workers are real
        if clock.monotonic() % 10 < 0.5:
            seen.append(rows(registry))
        if len(seen) == 3 and (tmp_path / "ready" / "0" / "tell.json.env").exists():
            stops[0]()

    clock.on_sleep = on_sleep
    assert tasks.work(made) == 0
    assert [(one.partition, one.instance, one.slot, one.state) for one in seen[1]] == [
        ("ocr@on-premises#gpu-07", "gpu-07", slot, "ready") for slot in (0, 1)
    ]
    assert all(one.report and one.report.version.startswith("command:") for one in seen[1])
    assert rows(registry) == []
    config = (tmp_path / "ready" / "0" / "tell.json.env").read_text()
    assert "GPU_SPOT_SLOT=0" in config
    assert "AWS_" not in config  # our credentials are not the worker's


def test_the_metadata_service_is_never_asked(registry: Any, tmp_path: Path, clock: FakeClock) -> None:
    made = host(tmp_path, clock, "true")
    made.wait_outside_warm_pool()
    assert made.instance() == made.identity.instance == "gpu-07"
    assert not made.heartbeat_sender().is_in_warm_pool()


@pytest.mark.parametrize("name", ["localhost", "", "gpu/07", "a" * 64, "gpu 07", "-gpu"])
def test_a_host_without_a_name_of_its_own_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    with pytest.raises(ConfigError, match=r"the host name must be unique"):
        OnPremisesHost(FakeClock(), "us-west-2")


@pytest.mark.parametrize(
    "change",
    [
        {"datasets": [{"snapshot": "snap-0123456789abcdef0", "device": "/dev/sdk", "path": "/data/a"}]},
        {"hooks": {"launch": "prepared"}},
    ],
)
def test_what_only_an_instance_has_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ContractError, match="onPremises needs service"):
        configs.load(configs.service(**{"hooks": None, "onPremises": True, **change}))


def test_without_credentials_there_is_one_line_and_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text("[default]\ncredential_process = false\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setattr(clients, "_session", cache(clients._session.__wrapped__))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(AgentError, match="client of dynamodb: CredentialRetrievalError"):
        clients.dynamodb("us-west-2")


def test_doctor_asks_for_nothing_that_only_an_instance_has(
    registry: Any, tmp_path: Path, clock: FakeClock
) -> None:
    made = host(tmp_path, clock, "true")
    assert [one.check for one in diagnose(made.config, made.metadata, made.host, None)] == ["clock", "units"]
