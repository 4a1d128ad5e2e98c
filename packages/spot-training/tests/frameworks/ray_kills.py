"""Kill examples/ray-tune with all of Ray's processes, again and again; print what it found, as JSON.

``python -m frameworks.ray_kills FOLDER KILLS TERMS`` runs in Ray's environment, on Linux.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).resolve().parents[4] / "examples/ray-tune/train.py"
SUBREAPER = 36
LIMIT_SECONDS = 300.0


def descendants(root: int) -> list[int]:
    """Return the processes below a process."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    below = [root]
    for process in below:
        below += [child for child, parent in parents.items() if parent == process]
    return below[1:]


def kill_all() -> None:
    """Kill every process below this one, at once as a lost machine does, until there is none."""
    while below := descendants(os.getpid()):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in below:
                try:
                    os.kill(process, number)
                except ProcessLookupError:
                    continue
        for process in below:
            try:
                os.waitpid(process, 0)
            except ChildProcessError:
                continue


class Study:
    """The example's study in a folder, started as often as needed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder, self.done = folder, folder / "done-file"
        paths = {"GPU_SPOT_CHECKPOINTS": folder, "GPU_SPOT_ARTIFACTS": folder, "GPU_SPOT_DONE": self.done}
        self.environment = {
            **os.environ,
            **{name: str(path) for name, path in paths.items()},
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",
        }

    def start(self) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, EXAMPLE],
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def steps(self) -> int:
        """Return how many checkpoints trials have, removed ones too."""
        numbers: dict[str, int] = {}
        for path in (self.folder / ".ray/study").glob("*/checkpoint_*/state.json"):
            trial, number = path.parents[1].name, int(path.parent.name[-6:]) + 1
            numbers[trial] = max(number, numbers.get(trial, 0))
        return sum(numbers.values())

    def best(self) -> str:
        return (self.folder / "best.json").read_text()

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3000:]


def run(folder: Path, signals: list[int]) -> dict[str, Any]:
    """Run the study to its end with these signals; return exit codes, the best trial, its trials' steps."""
    study, codes = Study(folder), []
    chance = random.Random(1)
    pending = list(signals)
    while not study.done.exists():
        began, process = time.monotonic(), study.start()
        goal = study.steps() + chance.randint(1, 9) if pending else sys.maxsize
        while process.poll() is None and study.steps() < goal:
            if time.monotonic() > began + LIMIT_SECONDS:
                kill_all()
                raise SystemExit(f"no end after {LIMIT_SECONDS:.0f} s: {study.log()}")
            time.sleep(0.02)
        if pending and process.poll() is None:
            time.sleep(chance.uniform(0, 0.5))
            number = pending.pop(0)
            if number == signal.SIGTERM:
                process.terminate()
                codes.append(process.wait(LIMIT_SECONDS))
            kill_all()
        elif process.wait():
            raise SystemExit(f"exit code {process.returncode}: {study.log()}")
        kill_all()
    state = json.loads(max((folder / ".ray/study").glob("experiment_state-*.json")).read_text())
    ends = [json.loads(result)["last_result"]["step"] for _, result in state["trial_data"]]
    return {"codes": codes, "unused": len(pending), "best": study.best(), "ends": ends}


def main(folder: str, kills: str, terms: str) -> None:
    ctypes.CDLL(None).prctl(SUBREAPER, 1)  # what Ray's processes leave behind is ours
    signals = [signal.SIGKILL] * int(kills) + [signal.SIGTERM] * int(terms)
    random.Random(0).shuffle(signals)
    plays = {"calm": run(Path(folder, "calm"), []), "killed": run(Path(folder, "killed"), [*signals])}
    json.dump(plays, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
