"""A job's command in real containers: Docker for what it may and how it ends, podman for its GPUs (CDI)."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real import containers as real
from tests.waiting import wait_until
from userdata.agent.machine.clock import SystemClock
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import SystemHost
from userdata.agent.work import containers, process
from userdata.agent.work.process import JobProcess
from userdata.agent.work.training.job_container import JobContainer, Mounts

USER = f"gpu-spot-{os.getpid()}"
"""Made for this test: all that runs as it is the job's."""
MEMORY = 200 * 2**20
"""Of a small machine."""


class Bench:
    """A job's folders, and its container in a runtime."""

    def __init__(self, place: Path, host: SystemHost) -> None:
        self.place, self.host = place, host
        self.code, self.data = place / "code", place / "dltraining"
        for folder in (self.code, self.data):
            folder.mkdir()
            os.chown(folder, pwd.getpwnam(USER).pw_uid, pwd.getpwnam(USER).pw_gid)

    def container(self, gpus: int = 0) -> JobContainer:
        mounts = Mounts((self.code, self.data))
        limits = ("nofile=1000:1000", "core=0")
        made = JobContainer(
            self.host,
            "resnet",
            real.IMAGE,
            USER,
            mounts,
            self.place / "run",
            str,
            (lambda: gpus) if gpus else None,
            {},
            limits,
            MEMORY,
        )
        made.clear()
        return made

    def start(self, script: str, gpus: int = 0) -> JobProcess:
        (self.code / "train.sh").write_text(script)
        container = self.container(gpus)
        environment_ = {"DATA": str(self.data), "PATH": "/nowhere", "HOME": str(self.data)}
        start = container.start(["sh", "train.sh"], environment_, self.code)
        with (self.place / "said").open("w") as said:
            started = process.spawn(start.argv, container.user, start.environment, self.place, said.fileno())
        return JobProcess(started, self.host, SystemClock(), pwd.getpwnam(USER).pw_uid)

    def run(self, script: str, gpus: int = 0) -> str:
        """Run to the end, which must be a good one; return what was said."""
        code = self.end(self.start(script, gpus))
        assert code == 0, self.said
        return self.said

    @staticmethod
    def end(job: JobProcess) -> int:
        wait_until(lambda: job.poll() is not None)
        return int(job.poll() or 0)

    @property
    def said(self) -> str:
        return (self.place / "said").read_text()

    def running(self) -> str:
        return subprocess.check_output(["docker", "ps", "--all", "--quiet"], text=True)

    def wait_for(self, name: str) -> None:
        wait_until((self.data / name).exists)


@pytest.fixture(scope="module", autouse=True)
def user() -> Iterator[None]:
    subprocess.run(["useradd", "--system", "--user-group", "--shell=/usr/sbin/nologin", USER], check=True)
    yield
    subprocess.run(["userdel", USER], check=True)


@pytest.fixture(scope="module")
def docker() -> Iterator[Bench]:
    with real.folder() as place, real.docker(place) as host:
        yield Bench(place, host)


@pytest.fixture(scope="module")
def podman() -> Iterator[Bench]:
    with real.folder() as place, real.podman(place) as host:
        yield Bench(place, host)


def test_the_command_is_the_jobs_user_with_no_rights_and_no_way_to_them(docker: Bench) -> None:
    account = pwd.getpwnam(USER)
    said = docker.run(
        "id -u; id -g; /suid/id -u; grep -E 'Cap(Eff|Bnd)|NoNewPrivs' /proc/self/status"
    ).split()
    assert said[:3] == [str(account.pw_uid), str(account.pw_gid), str(account.pw_uid)]
    rights = dict(zip(said[3::2], said[4::2], strict=True))
    assert {int(rights["CapEff:"], 16), int(rights["CapBnd:"], 16)} == {0}
    assert rights["NoNewPrivs:"] == "1"


def test_it_sees_its_folders_where_they_are_and_its_limits(docker: Bench) -> None:
    script = (
        'pwd; echo "$HOME"; echo "$PATH"; echo hello >$DATA/result; stat -c %U:%u $DATA/result;'
        " ulimit -n; ulimit -c; df -m /dev/shm | tail -1; cat /sys/fs/cgroup/memory/memory.limit_in_bytes"
        " || cat /sys/fs/cgroup/memory.max"
    )
    said = docker.run(script.replace("| tail -1", "| grep shm")).splitlines()
    assert said[:2] == [str(docker.code), str(docker.data)]
    assert "/nowhere" not in said[2]
    assert (docker.data / "result").read_text() == "hello\n"
    assert (docker.data / "result").owner() == USER
    assert said[4:6] == ["1000", "0"]
    assert said[6].split()[1] == "100"
    assert int(said[7]) == int(MEMORY * 0.95) // 4096 * 4096


def test_the_state_is_saved_while_the_loaders_live(docker: Bench) -> None:
    """Docker's client would have the container's init tell all of the group."""
    (docker.code / "main.sh").write_text(
        "(trap 'echo told >$DATA/loader; exit' TERM; touch $DATA/up; while :; do sleep 0.1; done) &\n"
        "trap 'sleep 1; test -e $DATA/loader || echo saved >$DATA/checkpoint; exit 0' TERM\n"
        "while :; do sleep 0.1; done\n"
    )
    job = docker.start("cp /bin/bash $DATA/train; exec $DATA/train main.sh")  # no shell, by its name
    docker.wait_for("up")
    job.stop(30.0)
    assert docker.end(job) == 0
    assert (docker.data / "checkpoint").read_text() == "saved\n"
    assert docker.running() == ""


def test_a_wrapper_in_a_container_does_not_cost_the_save(docker: Bench) -> None:
    """The container ends with its first command, and with that all that is still in it."""
    (docker.code / "work.sh").write_text(
        "trap 'sleep 1; echo saved >$DATA/wrapped; exit 0' TERM\n"
        "touch $DATA/at-work; while :; do sleep 0.1; done\n"
    )
    job = docker.start("sh work.sh\ntrue\n")
    docker.wait_for("at-work")
    job.stop(30.0)
    docker.end(job)
    assert (docker.data / "wrapped").read_text() == "saved\n"
    assert docker.running() == ""


def test_the_exit_code_is_the_commands_own(docker: Bench) -> None:
    assert docker.end(docker.start("exit 7")) == 7


def test_a_loader_that_is_killed_for_memory_is_the_loaders_end_only(docker: Bench) -> None:
    said = docker.run("dd if=/dev/zero of=/dev/null bs=500M count=1 2>&1; echo loader $?; echo trains on")
    assert "loader 137" in said
    assert said.endswith("trains on\n")


def test_the_metadata_service_is_out_of_reach(docker: Bench) -> None:
    asked = "printf 'GET /role HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3"
    (docker.code / "ask").write_text(f"exec 3<>/dev/tcp/{real.METADATA}/80 && {asked}")
    ask = "bash ask || echo refused"
    assert docker.run(ask).endswith("credentials of the role")  # it is there, and without a rule answers
    containers.block_metadata(docker.host)
    containers.block_metadata(docker.host)
    assert docker.run(ask).endswith("refused\n")
    rules = docker.host.run(["iptables", "--list-rules", "DOCKER-USER"], 60)
    assert rules.count(real.METADATA) == 1


def test_what_runs_on_after_its_client_was_killed_goes_before_the_next_start(docker: Bench) -> None:
    script = "touch $DATA/first; while true; do date >$DATA/clock 2>&1; sleep 0.1; done"
    job = docker.start(script)
    docker.wait_for("first")
    os.killpg(job.pid, signal.SIGKILL)  # as when the whole unit is killed: nobody looks after it
    os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)
    assert docker.running() != ""
    docker.container()
    assert docker.running() == ""
    assert docker.end(job) == -signal.SIGKILL
    assert docker.run("echo again") == "again\n"


def test_one_that_does_not_end_is_killed_when_its_time_is_up(docker: Bench) -> None:
    job = docker.start("trap '' TERM; touch $DATA/deaf; while true; do sleep 1; done")
    docker.wait_for("deaf")
    job.stop(2.0)
    assert docker.end(job) == -signal.SIGKILL
    docker.container()
    assert docker.running() == ""


def test_it_gets_the_gpus_of_the_cdi_specification(podman: Bench) -> None:
    said = podman.run("echo $GPU_OF; test -c /dev/nvidia0 && dd if=/dev/nvidia0 bs=4 count=1 | wc -c", 1)
    assert "the specification" in said
    assert containers.check_gpus(podman.host, real.IMAGE, 1) == 1
    with pytest.raises(AgentError, match="container sees 1 GPUs, not 2"):
        containers.check_gpus(podman.host, real.IMAGE, 2)


def test_a_machine_without_a_specification_gets_an_error_that_names_it(podman: Bench) -> None:
    original = real.CDI.read_text()
    real.CDI.write_text(original.replace("nvidia.com/gpu", "example.com/other"))
    try:
        with pytest.raises(AgentError, match=r"containers get no GPU: .*nvidia-ctk cdi generate"):
            containers.check_gpus(podman.host, real.IMAGE, 1)
    finally:
        real.CDI.write_text(original)
