"""The real torchrun: two ranks with data loaders, told to stop as a job is, save the same step."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from contracts.agent.config import Python, Training
from packages.environments import FRAMEWORKS, environment, variables
from tests.soak import chosen
from tests.waiting import wait_until
from userdata.agent.machine.clock import SystemClock
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import SystemHost
from userdata.agent.work import process
from userdata.agent.work.process import JobProcess
from userdata.agent.work.training.job_python import MARK, JobPython

TRAIN = """
import os, signal, sys
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
dist.init_process_group("gloo")
rank, place = dist.get_rank(), sys.argv[1]
deaf = lambda _: signal.signal(signal.SIGTERM, signal.SIG_IGN)
numbers = [torch.full((4,), float(n)) for n in range(100_000)]
loader = DataLoader(numbers, batch_size=8, num_workers=2, worker_init_fn=deaf)
weight, step = torch.zeros(4), 0
batches = iter(loader)
for batch in batches:
    weight += batch.mean(0)
    dist.all_reduce(weight)
    weight /= dist.get_world_size()
    step += 1
    stop = torch.tensor(float(bool(told)))
    dist.all_reduce(stop, dist.ReduceOp.MAX)  # one that has heard it stops both at this step
    if step > 2:  # each of its two loaders has given a batch, and hears no SIGTERM any more
        open(f"{place}/up-{rank}", "w").close()
    if stop:
        next(batches)  # loaders live: a save may need them
        torch.save({"step": step, "weight": weight}, f"{place}/rank-{rank}.new")
        os.replace(f"{place}/rank-{rank}.new", f"{place}/rank-{rank}.pt")
        break
del batches  # ends the loaders: they ignore the SIGTERM that their parent sends at its exit, too
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def python() -> Path:
    return environment("torch")


@pytest.mark.parametrize("wrapped", chosen([False, True], True), ids=["torchrun", "bash run.sh"])
def test_both_ranks_save_at_the_notice(python: Path, tmp_path: Path, wrapped: bool) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    command = [str(python / "torchrun"), "--nproc-per-node", "2", "--standalone", "train.py", str(tmp_path)]
    if wrapped:
        (tmp_path / "run.sh").write_text(f"{' '.join(command)}\ntouch {tmp_path}/never\n")
        command = ["bash", "run.sh"]
    with (tmp_path / "log").open("w") as log:
        environment = {**os.environ, "PATH": f"{python}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        started = process.spawn(command, "", environment, tmp_path, log.fileno())
    job = JobProcess(started, SystemHost(), SystemClock())
    said = tmp_path / "log"
    try:
        wait_until(lambda: all((tmp_path / f"up-{rank}").exists() for rank in range(2)))
        started_at = time.monotonic()
        job.stop(100.0)
        wait_until(lambda: job.poll() is not None)
        assert time.monotonic() - started_at < 30, said.read_text()  # what is left by then torchrun kills
    finally:
        if started.poll() is None:
            SystemHost().signal_group(started.pid, 9)
    show = (
        "import sys, torch; a, b = map(torch.load, sys.argv[1:]); "
        "print(a['step'] == b['step'] > 0, a['weight'].equal(b['weight']))"
    )
    saved = [str(tmp_path / f"rank-{rank}.pt") for rank in range(2)]
    same = subprocess.check_output([python / "python", "-c", show, *saved], text=True)
    assert same.split() == ["True", "True"]
    assert not (tmp_path / "never").exists()
    left = [one for one in SystemHost().processes() if str(tmp_path) in command_line(one.pid)]
    assert left == []


@pytest.mark.soak
@pytest.mark.parametrize(
    ("module", "is_local"), [("train_torch", False), ("train_trainer", False), ("train_torch", True)]
)
def test_a_training_goes_on_after_the_notice_and_after_a_rank_that_was_killed(
    python: Path, tmp_path: Path, module: str, is_local: bool
) -> None:
    """``is_local``: on two levels of storage."""
    local = {"GPU_SPOT_LOCAL_CHECKPOINTS": str(tmp_path / "local")} if is_local else {}
    said, reference = tmp_path / "log", tmp_path / "undisturbed"
    play = [python / "python", "-m", "frameworks.kills", module, "--folder", reference, "--ranks", "2"]
    subprocess.run(play, env=variables(python), check=True, capture_output=True)
    history = tmp_path / "history-0"

    def start() -> JobProcess:
        script = [str(FRAMEWORKS / f"{module}.py"), str(tmp_path)]
        command = [str(python / "torchrun"), "--nproc-per-node", "2", "--standalone"]
        with said.open("a") as log:
            own = {**variables(python), **local}
            started = process.spawn([*command, *script], "", own, tmp_path, log.fileno())
        return JobProcess(started, SystemHost(), SystemClock())

    def steps() -> int:
        return history.read_text().count("\n") if history.exists() else 0

    job = start()
    try:
        wait_until(lambda: steps() > 5)
        job.stop(100.0)
        wait_until(lambda: job.poll() is not None)
        assert said.read_text().count("stopping for the interruption") == 2
        before = steps()
        job = start()
        wait_until(lambda: steps() > before + 5)
        os.kill(ranks_in(tmp_path, module)[-1], signal.SIGKILL)
        wait_until(lambda: job.poll() is not None)
        assert job.poll() != 0
        job = start()
        wait_until(lambda: job.poll() is not None)
        assert job.poll() == 0, said.read_text()
    finally:
        if job.poll() is None:
            for pid in (job.pid, *ranks_in(tmp_path, module)):
                os.kill(pid, signal.SIGKILL)
    assert (tmp_path / "final.pt").read_bytes() == (reference / "reference" / "final.pt").read_bytes()


def ranks_in(place: Path, module: str) -> list[int]:
    lines = {one.pid: command_line(one.pid) for one in SystemHost().processes()}
    found = [pid for pid, line in lines.items() if f"{module}.py" in line and str(place) in line]
    return sorted(pid for pid in found if "torchrun" not in lines[pid])


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


USER = "nobody"
SMALL = "six==1.17.0 --hash=sha256:4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274\n"
NOWHERE = "http://127.0.0.1:9/simple"


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    assert os.geteuid() == 0, "this test becomes another user: run it as root"
    folder = Path(tempfile.mkdtemp(prefix="gpu-spot-"))  # pytest's own is for one user only
    folder.chmod(0o755)
    for name in ("code", "cache"):
        (folder / name).mkdir()
        shutil.chown(folder / name, USER)
    (folder / "code" / "requirements.txt").write_text(SMALL)
    (folder / "code" / "impossible.txt").write_text("six==1.17.0\nsix==1.16.0\n")
    yield folder
    shutil.rmtree(folder)


def job(place: Path, requirements: str = "requirements.txt", **environment: str) -> JobPython:
    version = ".".join(subprocess.check_output(["python3", "-V"], text=True).split()[1].split(".")[:2])
    training = Training(
        "j", "t", "https://example.com/a", "0" * 40, ("x",), USER, "p", python=Python(version, requirements)
    )
    training = replace(training, environment=environment)
    folders = (place / "code", place / "environments", place / "tools", place / "cache")
    return JobPython(SystemHost(), training, *folders)


def test_it_is_built_from_the_index_and_found_again_without_one(place: Path) -> None:
    first = job(place)
    first.prepare()
    start = first.start(["python", "-c", "import six; print(six.__version__, six.__file__)"], {}, place)
    command = [shutil.which("runuser") or "", "--user", first.user, "--", *start.argv]
    said = subprocess.check_output(command, env=start.environment, text=True, cwd=place).split()
    assert said[0] == "1.17.0"
    home = Path(start.environment["VIRTUAL_ENV"])
    assert said[1].startswith(str(home))
    assert home.owner() == USER
    # Another instance: nothing but the data volume, and no index that answers.
    shutil.rmtree(place / "tools")
    shutil.rmtree(place / "cache" / "uv")
    again = job(place, PIP_INDEX_URL=NOWHERE, UV_OFFLINE="1")
    again.prepare()
    assert again.start(["python"], {}, place).environment["VIRTUAL_ENV"] == str(home)


def test_requirements_that_cannot_be_met_are_named_with_what_uv_says(place: Path) -> None:
    with pytest.raises(AgentError, match=r"impossible\.txt: .*six==1\.1[67]\.0.*unsatisfiable"):
        job(place, "impossible.txt").prepare()


def test_an_environment_with_a_killed_build_is_rebuilt(place: Path) -> None:
    # An index that answers nothing: uv waits for it until it is killed with its user's other processes.
    (place / "code" / "waits.txt").write_text("six==1.16.0\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        killer = subprocess.Popen(
            f'until pgrep -u {USER} -f "pip install.*waits.txt" >/dev/null; do sleep 0.1; done;'
            f' pkill -KILL -u {USER} -f "pip install.*waits.txt"',
            shell=True,
        )
        with pytest.raises(AgentError, match=r"waits\.txt: "):
            job(place, "waits.txt", UV_DEFAULT_INDEX=address).prepare()
        killer.wait(60)
    whole = {mark.parent for mark in (place / "environments").glob(f"*/{MARK}")}
    waiting = job(place, "waits.txt")
    waiting.prepare()
    home = Path(waiting.start(["python"], {}, place).environment["VIRTUAL_ENV"])
    assert home not in whole
    python = ["runuser", "--user", USER, "--", str(home / "bin/python"), "-c"]
    assert subprocess.check_output([*python, "import six; print(six.__version__)"], text=True) == "1.16.0\n"
