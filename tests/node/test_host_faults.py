"""A faulty host costs the job nothing, and not forever. On moto, with real processes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest

from contracts.agent.names import UNIT_VOLUME
from tests.node.configs import FakeClock
from tests.node.fake_nvml import FakeGpu, FakeNvml
from tests.node.jobs import REGION, job, node, row, volumes, write_notice
from tests.node.metadata import MetadataServer
from tests.node.units import DiskHost
from userdata.agent import tasks
from userdata.agent.machine.errors import AgentError, CommandError
from userdata.agent.metrics.gpus import Gpus
from userdata.agent.storage.volume.execute import Executor
from userdata.agent.work.failures import inspection

AT_ONCE = [["shutdown", "--poweroff", "+5"], ["shutdown", "--poweroff", "+0"]]
LATER = [["shutdown", "--poweroff", "+10"]]

Launch = Callable[..., tasks.Node]


class Commands(DiskHost):
    """Git and directories work at once, or as configured; other commands are recorded."""

    def __init__(self, ec2: Any) -> None:
        super().__init__(ec2)
        self.ran: list[list[str]] = []
        self.owned: list[list[str]] = []
        self.fetch: Callable[[], object] = lambda: None
        self.revision = ""

    def run(self, argv: Any, timeout: float = 60, stdin: str = "", environment: Any = None) -> str:
        if "fetch" in argv:
            self.fetch()
        if argv[0] in ("shutdown", "systemctl"):
            self.ran.append(list(argv))
        if "trainer" in str(argv):
            self.owned.append(list(argv))
        return self.revision if "rev-parse" in argv else ""


@pytest.fixture
def launch(
    aws: Any,
    metadata_server: MetadataServer,
    clock: FakeClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Launch:
    """Launch an instance whose job is a shell's command, and bring the volume there."""
    # The metadata server is real, and between two tries only simulated time passes.
    monkeypatch.setattr(inspection, "MAX_PROBES", 30)
    host = Commands(aws)
    boto3.client("ssm", region_name=REGION)

    def launched(command: str, nvml: FakeNvml | None = None) -> tasks.Node:
        number = len(list(tmp_path.iterdir()))
        made = node(aws, metadata_server, clock, tmp_path / f"i{number}", f"{REGION}a", host)
        made.gpus = Gpus(nvml, len(nvml.gpus)) if nvml else None
        made.data = tmp_path / "data"
        made.data.mkdir(exist_ok=True)
        training = made.config.training
        host.revision = training.revision
        host.ran.clear()

        def spawn(argv: list[str], env: dict[str, str], cwd: Path) -> subprocess.Popen[bytes]:
            return subprocess.Popen(["sh", "-c", command], env=env, start_new_session=True)

        made.spawn = spawn
        assert tasks.volume(made, "up") == 0
        return made

    return launched


def test_a_host_without_its_gpu_is_replaced_and_nothing_is_counted(launch: Launch, aws: Any) -> None:
    nvml = FakeNvml([FakeGpu("GPU-1", error=15)])  # NVML_ERROR_GPU_IS_LOST
    made = launch("exit 1", nvml)
    assert tasks.run(made) == 0
    assert made.host.ran == AT_ONCE
    assert volumes(aws) == [(f"{REGION}a", "available", "live")]
    item = job()
    assert "holder" not in item
    assert (item["state"]["S"], item["hostFaults"]["M"]["count"]["N"]) == ("running", "1")
    assert row() is None


def test_the_fourth_host_in_a_row_blames_the_job(launch: Launch) -> None:
    for count in range(1, 5):
        made = launch("exit 1", FakeNvml([FakeGpu("GPU-1", error=15)]))
        assert tasks.run(made) == 0
        assert made.host.ran == (AT_ONCE if count < 4 else LATER)
    item = job()
    assert item["state"]["S"] == "failed"
    assert "4 hosts in a row without a new checkpoint: 1 of 1 GPUs" in item["reason"]["S"]
    assert tasks.run(launch("true")) == 0  # a later instance finds it failed and starts nothing
    assert job()["state"]["S"] == "failed"


def test_a_volume_that_cannot_be_let_go_keeps_no_bad_host(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = launch("exit 1", FakeNvml([FakeGpu("GPU-1", error=15)]))

    def fail(*_: Any) -> None:
        raise AgentError("umount: Input/output error")

    monkeypatch.setattr(Executor, "down", fail)
    assert tasks.run(made) == 0
    assert made.host.ran == AT_ONCE


def test_a_command_that_cannot_start_fails_the_job_in_the_end(launch: Launch, aws: Any) -> None:
    made = launch("")
    made.spawn = None  # the agent's own: as a user that is not there
    assert tasks.run(made) == 0
    assert job()["state"]["S"] == "failed"
    assert "cannot be started" in job()["reason"]["S"]
    assert made.host.ran == LATER
    assert volumes(aws) == [(f"{REGION}a", "available", "live")]


def test_a_revision_that_is_not_there_fails_the_job_in_the_end(launch: Launch, clock: FakeClock) -> None:
    made = launch("true")
    fetches: list[float] = []

    def refuse() -> None:
        fetches.append(clock.monotonic())
        raise CommandError("git: exit 128: fatal: remote error: upload-pack: not our ref")

    made.host.fetch = refuse
    assert tasks.run(made) == 0
    training = made.config.training
    assert len(fetches) == training.max_restarts + 1
    assert job()["state"]["S"] == "failed"
    assert "not our ref" in job()["reason"]["S"]


def test_a_server_that_comes_back_within_half_an_hour_costs_nothing(launch: Launch, clock: FakeClock) -> None:
    made = launch("exit 0")
    end = clock.monotonic() + 1200.0

    def away() -> None:
        if clock.monotonic() < end:
            raise CommandError("git: exit 128: fatal: unable to access: Could not resolve host: example.com")

    made.host.fetch = away
    assert tasks.run(made) == 0
    assert job()["state"]["S"] == "done"
    assert "hostFaults" not in job()
    # Before it starts, all checkpoints of the volume belong to the job's user, whoever wrote them.
    checkpoints = f"{made.data}/checkpoints"
    owned = [argv for argv in made.host.owned if argv[-1].startswith(checkpoints)]
    assert owned[:2] == [
        ["chown", "--no-dereference", "trainer", f"{checkpoints}/resnet"],
        ["chown", "--recursive", "--no-dereference", "trainer", checkpoints],
    ]


def test_a_volume_that_is_being_attached_is_waited_for(launch: Launch) -> None:
    made = launch("exit 0")
    (made.directory / "lease.json").unlink()
    for pid, verb in ((None, "restart"), (4242, "start")):
        made.host.main_pid = lambda unit, pid=pid: pid if unit == UNIT_VOLUME else None
        with pytest.raises(AgentError, match="the data volume is not attached"):
            tasks.run(made)
        assert made.host.ran[-1] == ["systemctl", verb, UNIT_VOLUME]


def test_what_breaks_after_a_notice_is_nobodys_fault(launch: Launch, clock: FakeClock) -> None:
    made = launch("exit 1", FakeNvml([FakeGpu("GPU-1", error=15)]))
    spawn = made.spawn
    assert spawn

    def spawn_with_notice(argv: list[str], env: dict[str, str], cwd: Path) -> Any:
        write_notice(made.directory, clock)
        return spawn(argv, env, cwd)

    made.spawn = spawn_with_notice
    assert tasks.run(made) == 0
    assert made.host.ran == []
    assert (job()["state"]["S"], "hostFaults" in job()) == ("running", False)


def test_a_table_that_is_away_does_not_lose_the_end_of_a_job(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    from userdata.agent.aws.jobs import Jobs

    made, mark, refusals = launch("exit 0"), Jobs.mark, [3]

    def sometimes(self: Jobs, state: Any, reason: str = "") -> None:
        if state == "done" and refusals[0]:
            refusals[0] -= 1
            raise AgentError("job table jobs: Throttling")
        mark(self, state, reason)

    monkeypatch.setattr(Jobs, "mark", sometimes)
    assert tasks.run(made) == 0
    assert job()["state"]["S"] == "done"
