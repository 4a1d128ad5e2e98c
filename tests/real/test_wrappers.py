"""Wrapped trainings from the agent's notice to the saved checkpoint and the exit code."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from packages.environments import environment, variables
from tests.node.bench import Bench
from tests.node.configs import FakeClock
from tests.node.metadata import MetadataServer

TRAIN: Final = """
import sys, time
from pathlib import Path
from spot_training import Interval, Spot
place, seconds = Path(sys.argv[1]), float(sys.argv[2])

def write(folder):
    time.sleep(seconds)
    (folder / "weights").write_text("x")

spot = Spot(place / "checkpoints", steps=10_000, interval=Interval(max_seconds=3600, overhead=0.9))
saved = spot.restore()
step = saved.step if saved else 0
while not spot.should_stop():
    time.sleep(0.05)
    step += 1
    (place / "up").touch()
spot.save(step, write)
print("saved", flush=True)
sys.exit(0)
"""
CRASHES: Final = "import sys\nfrom spot_training import Spot\nSpot(sys.argv[1], steps=9).restore()\n1 / 0\n"
NOTEBOOK: Final = """
{{"cells": [{{"cell_type": "code", "id": "a", "execution_count": null, "metadata": {{}}, "outputs": [],
"source": ["import runpy, sys\\n", "sys.argv = ['train.py', '{place}', '0']\\n",
"runpy.run_path('train.py', run_name='__main__')"]}}],
"metadata": {{"kernelspec": {{"name": "python3", "display_name": "Python 3", "language": "python"}}}},
"nbformat": 4, "nbformat_minor": 5}}
"""


@pytest.fixture(scope="module")
def python() -> Path:
    return environment("torch") / "python"


@pytest.fixture
def bench(tmp_path: Path, python: Path) -> Iterator[Bench]:
    server = MetadataServer()
    bench = Bench(tmp_path, FakeClock(), server)
    bench.variables = variables(python.parent)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "crashes.py").write_text(CRASHES)
    yield bench
    bench.close()
    server.close()


@pytest.fixture
def play(bench: Bench) -> Callable[..., str]:
    """Run a command, stopped once it trains; real time passes and the agent's clock stands still."""

    def begin(command: Sequence[str], *, is_stopped: bool = True) -> str:
        trainer = bench.trainer("true", restarts=0)
        trainer._training = replace(trainer._training, command=tuple(command))
        stopped: list[float] = []

        def on_sleep(seconds: float) -> None:
            bench.clock.advance(-seconds)
            time.sleep(0.02)
            if is_stopped and not stopped and (bench.tmp / "up").exists():
                stopped.append(time.monotonic())
                trainer.stop()

        bench.clock.on_sleep = on_sleep
        return trainer.run()

    return begin


def commands(python: Path, place: Path, seconds: float) -> dict[str, list[str]]:
    train = [str(python), "train.py", str(place), str(seconds)]
    line = " ".join(train)
    torchrun = [str(python.with_name("torchrun")), "--nproc-per-node", "1", *train[1:]]
    (place / "entrypoint.sh").write_text('#!/bin/bash\nset -e\necho entry\nexec "$@"\n')
    (place / "run.sh").write_text(f"#!/bin/sh\ncd .\n{line}\n")
    return {
        "bash -c 'a | tee'": ["bash", "-c", f"{line} 2>&1 | tee train.log"],
        "sh -c 'a | tee'": ["sh", "-c", f"{line} 2>&1 | tee train.log"],
        "bash script": ["bash", "run.sh"],
        "sh -c 'a && b'": ["sh", "-c", f"true && {line}"],
        "entrypoint": ["bash", "entrypoint.sh", *train],
        "entrypoint and shell": ["bash", "entrypoint.sh", "sh", "run.sh"],
        "torchrun": torchrun,
        "torchrun | tee": ["bash", "-c", f"{' '.join(torchrun)} 2>&1 | tee train.log"],
        "accelerate": [str(python.with_name("accelerate")), "launch", "--cpu", *train[1:]],
    }


NAMES: Final = (
    "bash -c 'a | tee'",
    "sh -c 'a | tee'",
    "bash script",
    "sh -c 'a && b'",
    "entrypoint",
    "entrypoint and shell",
    "torchrun",
    "torchrun | tee",
    "accelerate",
)


def checkpoints(place: Path) -> list[str]:
    return [path.name for path in (place / "checkpoints").glob("step-*")]


@pytest.mark.parametrize("name", NAMES)
def test_a_wrapped_training_saves_at_the_notice(
    bench: Bench, play: Callable[..., str], python: Path, name: str
) -> None:
    assert play(commands(python, bench.tmp, 0)[name]) == "stopped"
    assert len(checkpoints(bench.tmp)) == 1
    bench.output.flush()
    assert "saved\n" in (bench.tmp / ("train.log" if "tee" in name else "log")).read_text()
    assert bench.job.marks == ["running"]


@pytest.mark.soak
def test_torchrun_waits_for_a_save_longer_than_its_own_30_seconds(
    bench: Bench, play: Callable[..., str], python: Path
) -> None:
    assert play(commands(python, bench.tmp, 33)["torchrun"]) == "stopped"
    assert len(checkpoints(bench.tmp)) == 1


@pytest.mark.soak
@pytest.mark.parametrize("tool", ["uv", "papermill"])
def test_a_tool_saves_at_the_notice(bench: Bench, play: Callable[..., str], python: Path, tool: str) -> None:
    tools = environment("wrappers")
    if tool == "uv":
        command = [str(tools / "uv"), "run", "--no-project", "--python", str(python)]
        command += ["python", "train.py", str(bench.tmp), "0"]
    else:
        (bench.tmp / "train.ipynb").write_text(NOTEBOOK.format(place=bench.tmp))
        command = [str(tools / "papermill"), "train.ipynb", "out.ipynb"]
        bench.variables["PATH"] = f"{tools}:{os.environ['PATH']}"
    bench.variables["HOME"] = str(bench.tmp)
    assert play(command) == "stopped"
    assert len(checkpoints(bench.tmp)) == 1


@pytest.mark.parametrize(
    "command",
    [
        ["bash", "-c", "{python} crashes.py c | tee train.log"],
        ["sh", "-c", "{python} crashes.py c | tee train.log"],
        ["sh", "pipe.sh"],
        ["{python}", "crashes.py", "c"],
    ],
)
def test_a_crash_is_never_done(
    bench: Bench, play: Callable[..., str], python: Path, command: list[str]
) -> None:
    (bench.tmp / "pipe.sh").write_text(f"{python} crashes.py c | cat\n")
    assert play([part.format(python=python) for part in command], is_stopped=False) == "failed"
    assert bench.job.reasons[1]
