"""A job without a data volume: `run` takes its lease, and its checkpoints are mounted while that is held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.node import configs
from tests.node.configs import FakeClock
from tests.node.jobs import MakeNode, job, row, write_notice
from tests.node.units import UnitHost
from userdata.agent import tasks
from userdata.agent.machine.errors import AgentError, LeaseLostError
from userdata.agent.tasks import environment, holding
from userdata.agent.tasks import job as job_tasks
from userdata.agent.tasks.node import Stop

CHECKPOINTS = "/dltraining/checkpoints/resnet"
MOUNTS = [{"fileSystem": "fs-1", "accessPoint": "fsap-1", "path": path} for path in (CHECKPOINTS, "/models")]


class MountHost(UnitHost):
    """What is mounted, and each command that was run."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[list[str]] = []
        self.at: list[str] = []
        self.fails: dict[str, str] = {}

    def run(self, argv: Any, timeout: float = 60, stdin: str = "", environment: Any = None) -> str:
        self.ran.append(list(argv))
        if argv[0] in self.fails:
            raise AgentError(f"{argv[0]}: {self.fails[argv[0]]}")
        if argv[0] == "mount":
            self.at.append(argv[-1])
        return configs.REVISION if "rev-parse" in argv else "990\n"

    def processes(self) -> list[Any]:
        return []  # the job's process is none of this machine's

    def signal_group(self, pid: int, number: Any) -> None:
        self.signals.append((pid, number))

    def mounted(self, path: Path) -> str | None:
        return "127.0.0.1:/" if str(path) in self.at else None

    def unmount(self, path: Path) -> None:
        assert "holder" in job(), "the lease was given back while the checkpoints were mounted"
        if "umount" in self.fails:
            raise AgentError(f"umount: {path}: target is busy")
        self.at.remove(str(path))


class Sleeper:
    """A process that runs until it is stopped."""

    pid = 2**30  # unused

    def __init__(self) -> None:
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code


@pytest.fixture
def one(make_node: MakeNode) -> tasks.Node:
    return without_volume(make_node("a", "one", MountHost()))


def without_volume(made: tasks.Node, **changes: Any) -> tasks.Node:
    made.config = configs.load(configs.training(volume=None, efs=MOUNTS, **changes))
    return made


def test_the_job_runs_under_its_lease_and_gives_it_back_unmounted(one: tasks.Node) -> None:
    seen: list[tuple[str | None, list[str]]] = []

    def spawn(argv: Any, env: dict[str, str], cwd: Path) -> Any:
        seen.append((job().get("holder", {}).get("S"), list(one.host.at)))
        assert env["GPU_SPOT_CHECKPOINTS"] == CHECKPOINTS
        assert env["GPU_SPOT_ARTIFACTS"] == f"{CHECKPOINTS}/.artifacts"
        ended = Sleeper()
        ended.code = 0
        return ended

    one.spawn = spawn
    assert tasks.volume(one, "up") == 0  # nothing to do here
    assert "holder" not in job()
    assert tasks.run(one) == 0
    assert seen == [(one.identity.instance, [CHECKPOINTS, "/models"])]
    assert job()["state"] == {"S": "done"}
    assert "holder" not in job()
    assert one.host.at == ["/models"]
    # Nobody can be made the owner of anything behind an access point.
    assert ["mkdir", "--parents", f"{CHECKPOINTS}/.artifacts"] in one.host.ran
    assert not [argv for argv in one.host.ran if argv[0] == "install" and argv[-1].startswith(CHECKPOINTS)]
    assert not [argv for argv in one.host.ran if argv[0] in ("systemctl", "chown") and CHECKPOINTS in argv]
    assert job_tasks.progress_directory(one) == Path(CHECKPOINTS)


def test_without_the_lease_the_checkpoints_are_not_mounted(one: tasks.Node) -> None:
    assert tasks.efs(one) == 0
    assert one.host.at == ["/models"]


def test_a_successor_stands_by_until_the_lease_is_given_back(
    one: tasks.Node, clock: FakeClock, make_node: MakeNode
) -> None:
    holding.acquire(one, Stop())
    assert job_tasks.lease_and_volume(one) == (1, "")
    one.heartbeat_sender().deregister(0)
    other = without_volume(make_node("b", "other", MountHost()))
    states: set[str] = set()
    started_at = clock.wall()

    def watch(seconds: float) -> None:
        if found := row():
            states.add(found["state"])
        job_tasks.leases(one).renew(1)
        if clock.wall() - started_at > 300:
            clock.on_sleep = lambda seconds: None
            holding.release(one)

    clock.on_sleep = watch
    holding.acquire(other, Stop())
    assert states == {"waiting"}
    assert job()["holder"]["S"] == other.identity.instance
    assert job_tasks.lease_and_volume(one) is None


@pytest.mark.parametrize("why", ["a notice", "SIGTERM"])
def test_an_instance_that_is_taken_takes_no_lease(why: str, one: tasks.Node, clock: FakeClock) -> None:
    one.spawn = lambda *_: pytest.fail("nothing may start")
    handlers: list[Any] = []
    one.on_sigterm = handlers.append
    inner = one.wait_outside_warm_pool

    def gate(stop: Stop | None = None) -> None:
        inner(stop)
        if why == "a notice":
            write_notice(one.directory, clock)
        else:
            handlers[-1]()

    one.wait_outside_warm_pool = gate  # type: ignore[method-assign]
    assert tasks.run(one) == 0
    assert "holder" not in job()


def test_a_finished_job_is_taken_down_and_not_taken_over(one: tasks.Node) -> None:
    one.spawn = lambda *_: pytest.fail("nothing may start")
    job_tasks.jobs(one).mark("done")
    assert tasks.run(one) == 0
    assert "holder" not in job()
    assert ["shutdown", "--poweroff", "+10"] in one.host.ran


def test_a_lease_that_another_has_taken_ends_the_job_at_once(one: tasks.Node, clock: FakeClock) -> None:
    running = Sleeper()
    killed: list[float] = []

    def spawn(*_: Any) -> Any:
        taken.append(clock.monotonic())
        mine = job_tasks.leases(one)
        mine.release(1)
        mine._instance = "i-other"
        assert mine.acquire() is not None
        return running

    def signal_group(pid: int, number: Any) -> None:
        killed.append(clock.monotonic())
        running.code = -9

    taken: list[float] = []
    one.spawn = spawn
    one.host.signal_group = signal_group  # type: ignore[method-assign]
    with pytest.raises(LeaseLostError):
        tasks.run(one)
    assert killed[0] - taken[0] <= 31  # it is found at the next renewal
    assert CHECKPOINTS not in one.host.at
    assert job_tasks.lease_and_volume(one) is None


def test_what_cannot_be_unmounted_keeps_its_lease(one: tasks.Node) -> None:
    holding.acquire(one, Stop())
    one.mount()
    one.host.fails["umount"] = "busy"
    with pytest.raises(AgentError, match="busy"):
        holding.release(one)
    assert job()["holder"]["S"] == one.identity.instance
    assert job_tasks.lease_and_volume(one) is not None


def test_a_file_system_that_is_away_costs_the_host_and_not_the_job(
    one: tasks.Node, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The mount point is there, on the root disk.
    monkeypatch.setattr("userdata.agent.work.failures.inspection.check_writable", lambda path: ("", False))
    one.host.fails["mount"] = "exit 32: mount.nfs4: Connection timed out"
    one.spawn = lambda *_: pytest.fail("nothing may start")
    started_at = clock.monotonic()
    assert tasks.run(one) == 0
    assert clock.monotonic() - started_at > 20 * 60
    assert job()["state"] == {"S": "running"}
    assert job()["hostFaults"]["M"]["count"] == {"N": "1"}
    assert "holder" not in job()
    assert ["shutdown", "--poweroff", "+0"] in one.host.ran


def test_a_python_of_its_own_does_not_go_onto_the_file_system(one: tasks.Node) -> None:
    handlers = configs.training()["training"] | {"python": {"version": "3.12", "requirements": "r.txt"}}
    made = without_volume(one, training=handlers)
    found = environment.job_environment(made, job_tasks.code(made))
    assert found._directory == Path("/var/lib/gpu-spot/scratch/environments")  # type: ignore[attr-defined]
