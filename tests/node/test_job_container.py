"""How a job's container is asked for; a real one: tests/real/test_job_container.py."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.node.units import CommandHost
from tests.waiting import run_process
from userdata.agent.machine import files
from userdata.agent.machine.errors import AgentError, CommandError, TransientError
from userdata.agent.machine.host import Argv, SystemHost, Variables
from userdata.agent.work import containers
from userdata.agent.work.training.job_container import JobContainer, Mounts

IMAGE = f"example.com/train@sha256:{'0' * 64}"


Made = Callable[..., JobContainer]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    def make(host: CommandHost, gpus: int = 1, **own: str) -> JobContainer:
        mounts = Mounts((tmp_path / "code", tmp_path / "data"), (Path("/data/imagenet"),))
        me = pwd.getpwuid(os.getuid()).pw_name
        return JobContainer(
            host, "resnet", IMAGE, me, mounts, tmp_path, str, (lambda: gpus) if gpus else None, own
        )

    return make


def option(argv: list[str], name: str) -> list[str]:
    return [argv[n + 1] for n, one in enumerate(argv) if one == name]


def test_a_container_is_the_jobs_user_with_few_rights_and_its_folders(made: Made, tmp_path: Path) -> None:
    start = made(CommandHost()).start(["python", "train.py"], {"A": "b c"}, tmp_path / "code")
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
    start = made(CommandHost()).start(["x"], variables, tmp_path)
    assert "s3cret" not in " ".join(start.argv)
    [file] = map(Path, option(start.argv, "--env-file"))
    assert file.read_text().splitlines() == ["HOME=/h", "TOKEN=s3cret", "TINI_KILL_PROCESS_GROUP=1"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    made(CommandHost(), PATH="/opt/bin").start(["x"], {**variables, "PATH": "/opt/bin"}, tmp_path)
    assert "PATH=/opt/bin" in file.read_text().splitlines()


def test_a_container_that_was_left_over_goes_before_another_starts(made: Made, tmp_path: Path) -> None:
    host = CommandHost(ps="0123\n")
    made(host).start(["x"], {}, tmp_path)
    assert host.ran[-1] == ["docker", "rm", "--force", "--volumes", "gpu-spot-job-resnet"]
    none = CommandHost()
    made(none).start(["x"], {}, tmp_path)
    assert [argv[1] for argv in none.ran] == ["ps"]


def test_preparation_pulls_shuts_the_metadata_and_tries_the_gpus(made: Made) -> None:
    host = CommandHost(run="GPU 0: NVIDIA L4 (UUID: GPU-1)\n", iptables="")
    made(host).prepare()
    programs = [argv[:2] for argv in host.ran[1:]]  # after the look for the image
    assert programs == [["docker", "pull"], ["iptables", "--wait"], ["docker", "run"]]
    without = CommandHost()
    made(without, gpus=0).prepare()
    assert ["docker", "run"] not in [argv[:2] for argv in without.ran]
    assert not option(made(without, gpus=0).start(["x"], {}, Path("/tmp")).argv, "--device")


def test_the_rule_for_the_metadata_is_made_once() -> None:
    class Tables(CommandHost):
        def run(self, argv: Argv, timeout: float = 60, stdin: str = "", environment: Variables = None) -> str:
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


def test_an_image_that_is_on_the_disk_is_not_pulled() -> None:
    """Its registry may be away, or a lifecycle policy may have deleted it there."""
    host = CommandHost(image="sha256:1\n", pull=CommandError("docker: exit 1: no route to host"))
    containers.pull(host, IMAGE, str)
    host.answers["image"] = CommandError("docker: exit 1: Error: No such image")
    with pytest.raises(CommandError, match="no route"):
        containers.pull(host, IMAGE, str)


def test_a_missing_cdi_specification_is_generated_once() -> None:
    class Machine:
        def __init__(self) -> None:
            self.ran: list[list[str]] = []

        def run(self, argv: list[str], timeout: float = 60) -> str:
            self.ran.append(argv)
            if argv[0] == "docker" and len(self.ran) == 1:
                raise AgentError("docker: exit 125: unresolvable CDI devices nvidia.com/gpu=all")
            return "GPU 0: a\nGPU 1: b\n"

    machine = Machine()
    assert containers.check_gpus(machine, IMAGE, 2) == 2  # type: ignore[arg-type]
    assert [argv[0] for argv in machine.ran] == ["docker", "nvidia-ctk", "docker"]
    assert machine.ran[1][-1] == "--output=/var/run/cdi/nvidia.yaml"


def test_without_the_container_toolkit_both_errors_are_named() -> None:
    refused = AgentError("docker: exit 125: unresolvable CDI devices nvidia.com/gpu=all")
    host = CommandHost(**{"run": refused, "nvidia-ctk": AgentError("nvidia-ctk: no such program")})
    with pytest.raises(
        AgentError, match=r"containers get no GPU: .*unresolvable.*nvidia-ctk: no such program"
    ):
        containers.check_gpus(host, IMAGE, 2)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (AgentError("docker: exit 125: unresolvable CDI devices nvidia.com/gpu=all"), "nvidia-ctk cdi"),
        (AgentError('docker: exit 125: could not select "cdi": no known GPU nvidia.com/gpu'), "Docker 25"),
        (AgentError("docker: exit 125: no space left on device"), "no space left"),
        ("GPU 0: a\nGPU 1: b\n", "sees 2 GPUs, not 4"),
        ("", "sees 0 GPUs"),
    ],
)
def test_gpus_that_containers_do_not_get_are_named_with_what_is_missing(
    answer: str | Exception, message: str
) -> None:
    with pytest.raises(AgentError, match=message):
        containers.check_gpus(CommandHost(run=answer), IMAGE, 4)


def test_an_image_without_nvidia_smi_counts_as_seeing_all_gpus() -> None:
    missing = AgentError("docker: exit 127: exec: nvidia-smi: not found")
    assert containers.check_gpus(CommandHost(run=missing), IMAGE, 4) == 4


def test_a_container_that_is_being_removed_is_waited_for() -> None:
    answers = iter(["0123456789ab\n", "busy", "", ""])
    ran: list[str] = []

    class Removing:
        def run(
            self, argv: list[str], timeout: float = 60, stdin: str = "", environment: object = None
        ) -> str:
            ran.append(argv[1] if argv[0] == "docker" else argv[0])
            if (said := next(answers)) == "busy":
                raise AgentError("docker: exit 1: removal of container gpu-spot-job-a is already in progress")
            return said

    containers.remove(Removing(), "gpu-spot-job-a")  # type: ignore[arg-type]
    assert ran == ["ps", "rm", "sleep", "ps"]


ROOT = Path(__file__).parents[2]


def image(path: Path, mib: int) -> str:
    with path.open("wb") as file:
        file.truncate(mib * 2**20)
    return str(path)


def test_a_device_is_found_by_its_serial_number_whatever_its_name(tmp_path: Path) -> None:
    for name, serial in [("nvme0n1", "vol0root"), ("nvme2n1", "vol0abc123   \n"), ("nvme3n1", "vol0abc1234")]:
        (tmp_path / name / "device").mkdir(parents=True)
        (tmp_path / name / "device" / "serial").write_text(serial)
    (tmp_path / "nvme9n1").mkdir()  # detached while we look
    host = SystemHost(sys_block=tmp_path)
    assert host.device_of("vol-0abc123") == "/dev/nvme2n1"
    assert host.device_of("vol-0none") is None


def test_a_blank_device_differs_from_one_with_a_file_system(tmp_path: Path) -> None:
    device = image(tmp_path / "disk", 8)
    assert SystemHost().filesystem(device) is None
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    assert SystemHost().filesystem(device) == "ext4"


def test_a_device_that_cannot_be_read_in_full_is_not_blank(tmp_path: Path) -> None:
    host, gone, short = SystemHost(), tmp_path / "nvme1n1", tmp_path / "short"
    with pytest.raises(TransientError, match="nvme1n1: No such file or directory"):
        host.filesystem(str(gone))
    short.write_bytes(bytes(4096))
    with pytest.raises(TransientError, match="short: only 4096 of 131072 bytes could be read"):
        host.filesystem(str(short))
    torn = Path(image(tmp_path / "torn", 8))
    with torn.open("r+b") as file:
        file.write(b"XFSB")  # blkid wants more than that
    assert host.filesystem(str(torn)) == "xfs"  # a mount says what is wrong


@pytest.mark.skipif(shutil.which("mkfs.xfs") is None, reason="mkfs.xfs is missing: install xfsprogs")
def test_xfs_is_made_once_and_never_over_something(tmp_path: Path) -> None:
    device = image(tmp_path / "disk", 320)
    host = SystemHost()
    host.make_filesystem(device)
    assert host.filesystem(device) == "xfs"
    with pytest.raises(AgentError, match=r"mkfs\.xfs: exit 1"):
        host.make_filesystem(device)
    used = image(tmp_path / "used", 320)
    subprocess.run(["mkfs.ext4", "-q", used], check=True)
    with pytest.raises(AgentError, match=r"mkfs\.xfs: exit 1"):
        host.make_filesystem(used)
    assert host.filesystem(used) == "ext4"


MOUNTS = """
import subprocess, sys
from pathlib import Path
from contracts.agent.config import EfsMount
from userdata.agent.machine.host import SystemHost
from userdata.agent.storage import efs

class Host(SystemHost):
    def run(self, argv, timeout: float = 60, stdin="", environment=None):
        if argv[:3] == ["mount", "-t", "efs"]:  # without a network
            argv = ["mount", "-t", "tmpfs", argv[-2], argv[-1]]
        return super().run(argv, timeout, stdin, environment)

def mount(source, path):
    Path(path).mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", source, path], check=True)

host, data = Host(), Path(sys.argv[1], "with space")
below = data / "checkpoints" / "resnet"
mounts = [EfsMount("fs-1", "fsap-1", str(below))]
below.mkdir(parents=True)
print(host.mounted(data), host.mounted(below), host.mounted(data / "none"), host.mounted(data / "none" / "x"))
efs.mount_all(host, mounts)          # too early: the volume is not here yet
print(host.mounted(below))
mount("volume", data)                # and covers it
print(host.mounted(data), host.mounted(below))
below.mkdir(parents=True)            # the volume's own folder, to which the work would write
print(host.mounted(below))
efs.mount_all(host, mounts)
print(host.mounted(below), host.mounted(below / ".."))
mount("later", below)
print(host.mounted(below))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount")
def test_mounted_is_what_is_seen_at_a_path_and_not_what_a_table_lists(tmp_path: Path) -> None:
    """A mount of EFS that the data volume covers does not count: checkpoints would go to the volume."""
    command = ["unshare", "--mount", sys.executable, "-c", MOUNTS, str(tmp_path)]
    done = run_process(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "None None None None",
        "fs-1:/",
        "volume None",
        "None",
        "fs-1:/ None",
        "later",
    ]


def test_a_command_that_fails_says_why_in_one_line() -> None:
    with pytest.raises(AgentError, match=r"^ls: exit 2: ") as error:
        SystemHost().run(["ls", "/no/such/place"], 60)
    assert "\n" not in str(error.value)
    with pytest.raises(AgentError, match="no-such-command: No such file"):
        SystemHost().run(["no-such-command"], 60)
    assert SystemHost().run(["cat"], 60, stdin="x") == "x"


def test_a_signal_to_a_process_that_is_gone_is_no_error() -> None:
    process = subprocess.Popen(["sleep", "60"])
    SystemHost().signal(process.pid, signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM
    SystemHost().signal(process.pid, signal.SIGTERM)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "notice.json"
    files.write_json(path, {"n": 1})
    with path.open() as reader:
        files.write_json(path, {"n": 22222})
        assert reader.read() == '{"n": 1}\n'
    assert files.read_json(path) == {"n": 22222}
    files.write_json(path, {"n": 1})

    def full(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        files.write_json(path, {"n": 2})
    assert files.read_json(path) == {"n": 1}
    assert [p.name for p in path.parent.iterdir()] == ["notice.json"]
    path.write_text("[1")
    assert files.read_json(path) is None
