"""How a job's container is asked for; a real one: tests/real/test_job_container.py."""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.node.units import UnitHost
from userdata.agent.machine.errors import AgentError
from userdata.agent.work import containers
from userdata.agent.work.training.job_container import JobContainer, Mounts

IMAGE = f"example.com/train@sha256:{'0' * 64}"


class Docker(UnitHost):
    """Responds as configured, by the first words of a command."""

    def __init__(self, **answers: str | Exception) -> None:
        super().__init__()
        self.ran: list[list[str]] = []
        self.answers = answers

    def run(self, argv: Sequence[str], stdin: str = "", environment: Mapping[str, str] | None = None) -> str:
        self.ran.append(list(argv))
        answer = self.answers.get(argv[1] if argv[0] == "docker" else argv[0], "")
        if isinstance(answer, Exception):
            raise answer
        return answer


Made = Callable[..., JobContainer]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    def make(host: Docker, gpus: int = 1, **own: str) -> JobContainer:
        mounts = Mounts((tmp_path / "code", tmp_path / "data"), (Path("/data/imagenet"),))
        me = pwd.getpwuid(os.getuid()).pw_name
        return JobContainer(
            host, "resnet", IMAGE, me, mounts, tmp_path, lambda: "pw", (lambda: gpus) if gpus else None, own
        )

    return make


def option(argv: list[str], name: str) -> list[str]:
    return [argv[n + 1] for n, one in enumerate(argv) if one == name]


def test_a_container_is_the_jobs_user_with_few_rights_and_its_folders(made: Made, tmp_path: Path) -> None:
    start = made(Docker()).start(["python", "train.py"], {"A": "b c"}, tmp_path / "code")
    argv = start.argv
    assert argv[:2] == ["docker", "run"]
    assert argv[argv.index(IMAGE) + 1 :] == ["train.py"]
    assert option(argv, "--entrypoint") == ["python"]
    assert option(argv, "--user") == [f"{os.getuid()}:{pwd.getpwuid(os.getuid()).pw_gid}"]
    assert option(argv, "--cap-drop") == ["ALL"]
    assert option(argv, "--security-opt") == ["no-new-privileges"]
    assert option(argv, "--network") == ["bridge"]
    assert option(argv, "--device") == ["nvidia.com/gpu=all"]
    assert option(argv, "--workdir") == [f"{tmp_path}/code"]
    assert option(argv, "--volume") == [
        *(f"{tmp_path}/{name}:{tmp_path}/{name}" for name in ("code", "data")),
        "/data/imagenet:/data/imagenet:ro",
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory // 2 - 1 <= int(option(argv, "--shm-size")[0]) <= memory // 2
    assert memory // 2 < int(option(argv, "--memory")[0]) < memory
    assert {"nofile=1048576:1048576", "memlock=-1:-1", "core=0"} == set(option(argv, "--ulimit"))
    assert not {"--privileged", "host"}.intersection(argv)


def test_the_environment_goes_by_a_file_for_root_alone_and_the_images_own_path_counts(
    made: Made, tmp_path: Path
) -> None:
    variables = {"PATH": "/usr/bin", "USER": "me", "HOME": "/h", "TOKEN": "s3cret"}
    start = made(Docker()).start(["x"], variables, tmp_path)
    assert "s3cret" not in " ".join(start.argv)
    [file] = map(Path, option(start.argv, "--env-file"))
    assert file.read_text().splitlines() == ["HOME=/h", "TOKEN=s3cret", "TINI_KILL_PROCESS_GROUP=1"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    made(Docker(), PATH="/opt/bin").start(["x"], {**variables, "PATH": "/opt/bin"}, tmp_path)
    assert "PATH=/opt/bin" in file.read_text().splitlines()


def test_a_container_that_was_left_over_goes_before_another_starts(made: Made, tmp_path: Path) -> None:
    host = Docker(ps="0123\n")
    made(host).start(["x"], {}, tmp_path)
    assert host.ran[-1] == ["docker", "rm", "--force", "--volumes", "gpu-spot-job-resnet"]
    none = Docker()
    made(none).start(["x"], {}, tmp_path)
    assert [argv[1] for argv in none.ran] == ["ps"]


def test_preparation_pulls_shuts_the_metadata_and_tries_the_gpus(made: Made) -> None:
    host = Docker(run="GPU 0: NVIDIA L4 (UUID: GPU-1)\n", iptables="")
    made(host).prepare()
    assert [argv[:2] for argv in host.ran] == [
        ["docker", "pull"],
        ["iptables", "--wait"],
        ["docker", "run"],
    ]
    without = Docker()
    made(without, gpus=0).prepare()
    assert ["docker", "run"] not in [argv[:2] for argv in without.ran]
    assert not option(made(without, gpus=0).start(["x"], {}, Path("/tmp")).argv, "--device")


def test_the_rule_for_the_metadata_is_made_once() -> None:
    class Tables(Docker):
        def run(
            self, argv: Sequence[str], stdin: str = "", environment: Mapping[str, str] | None = None
        ) -> str:
            rule = ["-".join(argv[3:])]
            if "--check" in argv and rule not in self.ran:
                raise AgentError("iptables: exit 1: Bad rule")
            if "--insert" in argv:
                self.ran.append(rule)
            return ""

    host = Tables()
    containers.block_metadata(host)
    containers.block_metadata(host)
    assert host.ran == [["DOCKER-USER---destination-169.254.169.254---jump-REJECT"]]


def test_a_missing_cdi_specification_is_generated_once() -> None:
    class Machine:
        def __init__(self) -> None:
            self.ran: list[list[str]] = []

        def run(self, argv: list[str]) -> str:
            self.ran.append(argv)
            if argv[0] == "docker" and len(self.ran) == 1:
                raise AgentError("docker: exit 125: unresolvable CDI devices nvidia.com/gpu=all")
            return "GPU 0: a\nGPU 1: b\n"

    machine = Machine()
    assert containers.check_gpus(machine, IMAGE, 2) == 2  # type: ignore[arg-type]
    assert [argv[0] for argv in machine.ran] == ["docker", "nvidia-ctk", "docker"]
    assert machine.ran[1][-1] == "--output=/var/run/cdi/nvidia.yaml"


def test_without_the_container_toolkit_both_errors_are_named() -> None:
    class Machine:
        def run(self, argv: list[str]) -> str:
            if argv[0] == "nvidia-ctk":
                raise AgentError("nvidia-ctk: no such program")
            raise AgentError("docker: exit 125: unresolvable CDI devices nvidia.com/gpu=all")

    with pytest.raises(
        AgentError, match=r"containers get no GPU: .*unresolvable.*nvidia-ctk: no such program"
    ):
        containers.check_gpus(Machine(), IMAGE, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (AgentError("docker: exit 125: unresolvable CDI devices nvidia.com/gpu=all"), "nvidia-ctk cdi"),
        (AgentError('docker: exit 125: could not select "cdi": no known GPU nvidia.com/gpu'), "Docker 25"),
        (AgentError("docker: exit 125: no space left on device"), "no space left"),
        ("GPU 0: a\nGPU 1: b\n", re.escape("sees 2 GPUs, expected: 4")),
        ("", "sees 0 GPUs"),
    ],
)
def test_gpus_that_containers_do_not_get_are_named_with_what_is_missing(
    answer: str | Exception, message: str
) -> None:
    with pytest.raises(AgentError, match=message):
        containers.check_gpus(Docker(run=answer), IMAGE, 4)


def test_an_image_without_nvidia_smi_counts_as_seeing_all_gpus() -> None:
    missing = AgentError("docker: exit 127: exec: nvidia-smi: not found")
    assert containers.check_gpus(Docker(run=missing), IMAGE, 4) == 4


def test_a_container_that_is_being_removed_is_waited_for() -> None:
    answers = iter(["0123456789ab\n", "busy", "", ""])
    ran: list[str] = []

    class Removing:
        def run(self, argv: list[str], stdin: str = "", environment: object = None) -> str:
            ran.append(argv[1] if argv[0] == "docker" else argv[0])
            if (said := next(answers)) == "busy":
                raise AgentError("docker: exit 1: removal of container gpu-spot-job-a is already in progress")
            return said

    containers.remove(Removing(), "gpu-spot-job-a")  # type: ignore[arg-type]
    assert ran == ["ps", "rm", "sleep", "ps"]
