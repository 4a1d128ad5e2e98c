"""A service's worker in a real container: what images of vLLM, TGI, Triton and Ray need at their start.

The stand-in demands what those images do: two GPUs, a token, caches below HOME and where their variables say,
files in /tmp, and some GiB of /dev/shm (vLLM guide, "Using Docker"; Ray, "Object Spilling": /tmp/ray).
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from contracts.agent.config import Service
from tests.node.configs import FakeClock
from tests.node.metadata import MetadataServer
from tests.node.workbench import Bench
from tests.real import containers as real
from userdata.agent.machine.host import SystemHost
from userdata.agent.storage import scratch
from userdata.agent.work import container
from userdata.agent.work.service import slots
from userdata.agent.work.service.workers import Workers

TOKEN = "hf-canary-77c1"
DEMANDS = f"""
set -e
test "$HF_TOKEN" = "{TOKEN[:9]}""{TOKEN[9:]}"
test -c /dev/nvidia0; test -c /dev/nvidia1
for d in ~/.cache/vllm ~/.config/vllm ~/.triton/cache "$HF_HOME/hub" "$TORCH_HOME" "$XDG_CACHE_HOME/x" \\
  /tmp/ray; do
  mkdir -p "$d"; echo model >"$d/written"
done
size=$(df -m /dev/shm | grep shm | {{ read -r _ mib _; echo "$mib"; }})
test "$size" -ge 2048
dd if=/dev/zero of=/dev/shm/nccl bs=1048576 count=64 2>/dev/null
touch "$GPU_SPOT_READY"
exec sleep 300
"""
IMAGES = {"root": real.IMAGE, "1000": "gpu-spot/of-a-user:1"}
MADE = ("SCRATCH_DIR", "WORK_HOME", "CACHE_DIR")


@pytest.fixture(scope="module")
def podman() -> Iterator[SystemHost]:
    with real.folder() as place, real.podman(place) as host:
        for_user = ["docker", "import", "--change", "USER 1000:1000", "-", IMAGES["1000"]]
        subprocess.run(for_user, input=real.image(place / "of-a-user"), check=True, capture_output=True)
        yield host


@pytest.fixture
def run_directory() -> Iterator[Path]:
    """The agent's runtime directory, which every user may enter."""
    with real.folder() as folder:
        yield folder


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in place of the instance's scratch space."""
    with real.folder() as folder:
        for module in (scratch, container, slots):
            for name, below in zip(MADE, ("", "home", "cache"), strict=True):
                monkeypatch.setattr(module, name, folder / below, raising=False)
        scratch.prepare_containers(SystemHost())
        yield folder


def started(
    place: Path, tmp: Path, script: str, user: str = "root", **settings: Any
) -> subprocess.Popen[bytes]:
    """A worker of two GPUs, started as the agent does but for the registry."""
    service = Service(
        image=IMAGES[user], command=("sh", "-c", script), gpus_per_worker=2, shm_gib=3, **settings
    )
    bench = Bench(tmp, clock := FakeClock(), MetadataServer())
    found: list[subprocess.Popen[bytes]] = []

    def spawn(argv: list[str], more: Mapping[str, str]) -> subprocess.Popen[bytes]:
        assert TOKEN not in str(argv)
        with (tmp / "said").open("wb") as said:
            found.append(subprocess.Popen(argv, stdout=said, stderr=said))
        return found[-1]

    made = Workers(
        service, slots.slots(service, 2), bench.heartbeats, SystemHost(), clock, tmp, spawn=spawn,
        secrets=lambda: {"HF_TOKEN": TOKEN},
    )  # fmt: skip
    made.tick()
    return found[0]


def wait_for(path: Path, process: subprocess.Popen[bytes], said: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None, said.read_text()
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("user", ["root", "1000"])
def test_an_image_that_demands_what_model_servers_demand_starts(
    podman: SystemHost, place: Path, run_directory: Path, user: str
) -> None:
    process = started(place, run_directory, DEMANDS, user)
    try:
        wait_for(slots.ready_file(slots.Slot(0, 0), run_directory), process, run_directory / "said")
        assert (place / "cache" / "huggingface" / "hub" / "written").read_text() == "model\n"
        assert (place / "tmp" / "0" / "ray" / "written").exists()
        assert (place / "home" / ".cache" / "vllm" / "written").exists()
        lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
        assert not [line for line in lines if TOKEN.encode() in line]
    finally:
        podman.run(["docker", "rm", "--force", slots.container(slots.Slot(0, 0))], 60)
        process.wait(60)


@pytest.mark.parametrize(("read_only_root", "code"), [(True, 7), (False, 0)])
def test_the_root_file_system_is_writable_if_the_stack_file_says_so(
    podman: SystemHost, place: Path, run_directory: Path, read_only_root: bool, code: int
) -> None:
    script = "touch /etc/written || exit 7"
    process = started(place, run_directory, script, read_only_root=read_only_root)
    assert process.wait(60) == code
