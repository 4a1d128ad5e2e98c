"""A Docker daemon and podman of our own, each with an image of a shell and nothing else."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from userdata.agent.machine.host import Argv, SystemHost, Variables

IMAGE: Final = "gpu-spot/shell:1"
PYTHON: Final = "gpu-spot/python:1"
INTERPRETER: Final = Path(sys.executable).resolve()
"""In the image ``PYTHON``, too: see ``python_image``."""
METADATA: Final = "169.254.169.254"
CDI: Final = Path("/var/run/cdi/gpu-spot-test.json")
GPU: Final = Path("/dev/gpu-spot-test0")
DOCKER: Final = ("dockerd", "docker", "ip", "iptables", "unshare", "nsenter", "busybox")
PODMAN: Final = ("podman", "runc", "busybox", "catatonit")
_APPLETS: Final = (
    "sh id sleep timeout cat ls touch test df dd env grep stat mkdir rm kill wc date pwd echo ln cp uniq"
)


class LackingError(Exception):
    """This machine cannot run containers; the text says what it lacks."""


def needed(*programs: str) -> None:
    """Raise `LackingError` where this machine cannot run containers."""
    if os.geteuid() != 0:
        raise LackingError("real containers need root")
    if lacking := [one for one in programs if shutil.which(one) is None]:
        raise LackingError(f"missing: {', '.join(lacking)}; .ci/system-packages real installs them")


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder that every user may look into; pytest's are for one user only."""
    with tempfile.TemporaryDirectory(prefix="gpu-spot-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def image(place: Path) -> bytes:
    """The image as a tar: busybox, a copy of it that would make anybody root, and bash, which can ask TCP."""
    root = place / "root"
    for name in ("bin", "tmp", "etc"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc" / "passwd").write_text("root:x:0:0::/:/bin/sh\n")
    busybox = shutil.which("busybox") or ""
    shutil.copy(busybox, root / "bin" / "busybox")
    for name in _APPLETS.split():
        (root / "bin" / name).symlink_to("busybox")
    linked = subprocess.check_output(["ldd", "/bin/bash"], text=True)
    for one in ("/bin/bash", *re.findall(r"/\S+", linked)):
        (root / one[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(one, root / one[1:])
    (root / "link").symlink_to("/run/gpu-spot")
    (root / "suid").mkdir()
    shutil.copy(busybox, root / "suid" / "id")
    (root / "suid" / "id").chmod(0o4755)
    return subprocess.check_output(["tar", "--create", "--directory", str(root), "."])


def python_image(code: Sequence[tuple[Path, str]]) -> bytes:
    """An image as a tar: this interpreter with the libraries that it loads, and ``code`` below ``/app``."""
    library = Path(sysconfig.get_paths()["stdlib"])
    loaded = [INTERPRETER, *Path(sysconfig.get_config_var("DESTSHARED")).glob("*.so")]
    said = subprocess.run(["ldd", *map(str, loaded)], capture_output=True, text=True, check=True).stdout
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", dereference=True) as tar:
        for one in sorted({str(INTERPRETER), *re.findall(r"(/\S+) \(0x", said)}):
            tar.add(one)
        tar.add(library, filter=_needed_of_python)
        for path, name in code:
            tar.add(path, f"app/{name}", filter=_needed_of_python)
        for name in ("tmp", "etc"):
            folder_ = tarfile.TarInfo(name)
            folder_.type, folder_.mode = tarfile.DIRTYPE, 0o1777
            tar.addfile(folder_)
    return packed.getvalue()


_LEFT_OUT: Final = {"test", "tests", "site-packages", "dist-packages", "idlelib", "ensurepip", "tkinter"}


def _needed_of_python(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what is large and not needed; what is compiled stays, or each start would compile it."""
    inside = Path(entry.name)
    if inside.parts[0] == "app":
        return entry
    is_large = inside.name.startswith(("config-3", "lib2to3")) or ".opt-" in inside.name
    return None if is_large or _LEFT_OUT & set(inside.parts) else entry


def take_in(packed: bytes, name: str) -> None:
    """Give the engine behind ``docker`` an image."""
    subprocess.run(["docker", "import", "-", name], input=packed, check=True, capture_output=True)


def gpu_file(place: Path, uuid: str, number: int) -> None:
    """Make a device that stands for a GPU; Docker of this age has no CDI, see ``DockerHost``."""
    os.mknod(place / uuid, 0o666 | 0o020000, os.makedev(1, 5))
    (place / uuid).chmod(0o666)
    (place / f"{uuid}.path").write_text(f"/dev/nvidia{number}")


class DockerHost(SystemHost):
    """Rules of the firewall are those of the daemon's namespace; devices of CDI are those of ``gpu_file``."""

    def __init__(self, daemon: int, place: Path) -> None:
        super().__init__()
        self.place = place
        self.inside = ["nsenter", f"--net=/proc/{daemon}/ns/net", "--"]

    def run(self, argv: Argv, timeout: float = 60, stdin: str = "", environment: Variables = None) -> str:
        inside = self.inside if argv[0] in ("iptables", "nft") else []
        granted = list(argv)
        for limit in {"memlock=-1:-1", "nofile=1048576:1048576"}.intersection(granted):
            at = granted.index(limit)
            del granted[at - 1 : at + 1]
        for at, name in [(at, word) for at, word in enumerate(granted) if granted[at - 1] == "--device"]:
            kind, _, device = name.partition("=")
            if kind == "nvidia.com/gpu":
                granted[at] = f"{self.place / device}:{(self.place / f'{device}.path').read_text()}"
            else:
                [file] = (self.place / "cdi").glob(f"*-{device}.json")
                [edits] = [one["containerEdits"] for one in json.loads(file.read_text())["devices"]]
                granted[at - 1 : at + 1] = ["--env", *edits["env"]]
        return super().run([*inside, *granted], timeout, stdin, environment)


def _metadata(place: Path, daemon: int) -> subprocess.Popen[bytes]:
    """Serve at the metadata service's address, one hop from the daemon's network, as EC2 does."""
    (place / "web").mkdir()
    (place / "web" / "role").write_text("credentials of the role")
    up = f"until ip addr add {METADATA}/24 dev meta1 2>/dev/null; do sleep 0.1; done; ip link set meta1 up"
    serve = f"{up}; exec busybox httpd -f -p {METADATA}:80 -h {place}/web"
    server = subprocess.Popen(["unshare", "--net", "sh", "-c", serve])
    inside = ["nsenter", f"--net=/proc/{daemon}/ns/net", "--", "ip"]
    for said in (
        "link add meta0 type veth peer name meta1",
        f"link set meta1 netns {server.pid}",
        "addr add 169.254.169.1/24 dev meta0",
        "link set meta0 up",
    ):
        subprocess.run([*inside, *said.split()], check=True)
    return server


@contextlib.contextmanager
def docker(place: Path) -> Iterator[DockerHost]:
    """Run a daemon; ``DOCKER_HOST`` leads to it."""
    needed(*DOCKER)
    socket, log = place / "docker.sock", place / "docker.log"
    paths = f"--data-root {place}/data --exec-root {place}/exec -H unix://{socket} -p {place}/docker.pid"
    script = f"ip link set lo up; exec dockerd {paths} --ip6tables=false"
    with log.open("w") as said:
        daemon = subprocess.Popen(["unshare", "--net", "sh", "-ec", script], stdout=said, stderr=said)
    before = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = f"unix://{socket}"
    metadata = None
    try:
        end = time.monotonic() + 120
        while subprocess.run(["docker", "info"], capture_output=True).returncode:
            assert daemon.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.2)
        metadata = _metadata(place, daemon.pid)
        take_in(image(place), IMAGE)
        yield DockerHost(daemon.pid, place)
    finally:
        if metadata is not None:
            metadata.kill()
            metadata.wait()
        daemon.terminate()
        daemon.wait(60)
        os.environ.pop("DOCKER_HOST")
        if before is not None:
            os.environ["DOCKER_HOST"] = before
        for mount in Path("/proc/self/mounts").read_text().split():
            if mount.startswith(str(place)):
                subprocess.run(["umount", "--lazy", mount], check=False)


# What podman of this age and this machine want otherwise than Docker on an instance.
_SHIM: Final = """#!/bin/sh
set -e
command=$1; shift
if test "$command" = pull; then command="image exists"; shift; fi  # --quiet
if test "$command" = run; then
  n=$#
  while test $n -gt 0; do
    one=$1; shift; n=$((n - 1))
    test "$one" = bridge && one=none
    set -- "$@" "$one"
  done
  set -- --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 "$@"
fi
exec podman --root {place}/store --runroot {place}/running \\
  --cgroup-manager cgroupfs --runtime runc $command "$@"
"""


@contextlib.contextmanager
def podman(place: Path) -> Iterator[SystemHost]:
    """Let ``docker`` be podman, which knows CDI, with one device of ours and a double of ``nvidia-smi``."""
    needed(*PODMAN)
    tools = place / "bin"
    tools.mkdir()
    (tools / "docker").write_text(_SHIM.format(place=place))
    (tools / "nvidia-smi").write_text('#!/bin/sh\ntest -c /dev/nvidia0 && echo "GPU 0: a device file"\n')
    for one in tools.iterdir():
        one.chmod(0o755)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{tools}:{before}"
    GPU.unlink(missing_ok=True)  # what a run that was killed has left
    os.mknod(GPU, 0o666 | 0o020000, os.makedev(1, 5))  # reads as zeroes
    GPU.chmod(0o666)
    CDI.parent.mkdir(parents=True, exist_ok=True)
    smi = {
        "hostPath": str(tools / "nvidia-smi"),
        "containerPath": "/bin/nvidia-smi",
        "options": ["ro", "bind"],
    }
    devices = [
        {
            "name": name,
            "containerEdits": {
                "deviceNodes": [{"path": path, "hostPath": str(GPU)}],
                "env": ["GPU_OF=the specification"],
                "mounts": [smi],
            },
        }
        for name, path in (("all", "/dev/nvidia0"), ("0", "/dev/nvidia0"), ("1", "/dev/nvidia1"))
    ]
    edits = {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}  # as NVIDIA's specification
    specification = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
    CDI.write_text(json.dumps({**specification, "containerEdits": edits}))
    try:
        take_in(image(place), IMAGE)
        yield SystemHost()
    finally:
        subprocess.run(["docker", "rm", "--all", "--force"], check=False, capture_output=True)
        os.environ["PATH"] = before
        CDI.unlink()
        GPU.unlink()
        for mount in Path("/proc/self/mounts").read_text().split():
            if mount.startswith(str(place)):
                subprocess.run(["umount", "--lazy", mount], check=False)
