"""The real torchrun: two ranks with data loaders, told to stop as a job is, save the same step."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real.environments import environment, variables
from tests.soak import chosen
from userdata.agent.machine.clock import SystemClock
from userdata.agent.machine.host import SystemHost
from userdata.agent.work import process
from userdata.agent.work.process import JobProcess

REAL = Path(__file__).parent

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


END = """
import atexit, sys
from torch import distributed
from spot_training.torch.ranks import TorchRanks

def show():
    for group in (ranks._flags, ranks._saves):
        try:
            print("alive", distributed.get_rank(group))
        except ValueError:
            print("destroyed")

distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/1", rank=0, world_size=1)
atexit.register(show)
ranks = TorchRanks()
assert ranks.any(True, False) == [True, False]
if sys.argv[2] != "nothing":
    distributed.destroy_process_group()
if sys.argv[2] == "again":
    distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/2", rank=0, world_size=1)
"""


@pytest.fixture(scope="module")
def python() -> Path:
    return environment("torch")


def wait(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.05)


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
        wait(lambda: all((tmp_path / f"up-{rank}").exists() for rank in range(2)), said.read_text())
        started_at = time.monotonic()
        job.stop(100.0)
        wait(lambda: job.poll() is not None, "it does not end")
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
    play = [python / "python", REAL / "kills.py", module, "--folder", reference, "--ranks", "2"]
    subprocess.run(play, env=variables(python), check=True, capture_output=True)
    history = tmp_path / "history-0"

    def start() -> JobProcess:
        script = [str(REAL / f"{module}.py"), str(tmp_path)]
        command = [str(python / "torchrun"), "--nproc-per-node", "2", "--standalone"]
        with said.open("a") as log:
            own = {**variables(python), **local}
            started = process.spawn([*command, *script], "", own, tmp_path, log.fileno())
        return JobProcess(started, SystemHost(), SystemClock())

    def steps() -> int:
        return history.read_text().count("\n") if history.exists() else 0

    job = start()
    try:
        wait(lambda: steps() > 5, said.read_text())
        job.stop(100.0)
        wait(lambda: job.poll() is not None, "it does not end")
        assert said.read_text().count("stopping for the interruption") == 2
        before = steps()
        job = start()
        wait(lambda: steps() > before + 5, said.read_text())
        os.kill(ranks_in(tmp_path, module)[-1], signal.SIGKILL)
        wait(lambda: job.poll() is not None, "it does not end")
        assert job.poll() != 0
        job = start()
        wait(lambda: job.poll() is not None, "it does not end")
        assert job.poll() == 0, said.read_text()
    finally:
        if job.poll() is None:
            for pid in (job.pid, *ranks_in(tmp_path, module)):
                os.kill(pid, signal.SIGKILL)
    assert (tmp_path / "final.pt").read_bytes() == (reference / "reference" / "final.pt").read_bytes()


@pytest.mark.parametrize("destroyed", ["nothing", "all", "again"])
def test_no_group_of_ours_outlives_the_script(python: Path, tmp_path: Path, destroyed: str) -> None:
    command = [python / "python", "-c", END, tmp_path, destroyed]
    result = subprocess.run(command, env=variables(python), capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stdout.split()) == (0, ["destroyed"] * 2), result.stderr
    assert "Traceback" not in result.stderr


def ranks_in(place: Path, module: str) -> list[int]:
    lines = {one.pid: command_line(one.pid) for one in SystemHost().processes()}
    found = [pid for pid, line in lines.items() if f"{module}.py" in line and str(place) in line]
    return sorted(pid for pid in found if "torchrun" not in lines[pid])


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
