"""A training with two levels of storage, in its own process: killed, interrupted, moved to another machine.

``python levels.py FAR LOCAL STEPS FAR_SECONDS`` trains; it prints where it resumed, and
its last state.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from spot_training import Interval, Spot
from spot_training.identity import TrainingRun
from spot_training.levels.local_level import local_folder
from spot_training.storage.manifest import step_of
from support.waiting import wait_until

STEP_SECONDS = 0.002
FACTOR, PRIME = 48271, 2**31 - 1


def state_after(steps: int) -> int:
    state = 1
    for step in range(steps):
        state = (state * FACTOR + step) % PRIME
    return state


def train(far: str, local: str, steps: int, far_seconds: float = 3600.0) -> None:
    """Train; save locally every 20 ms, and to ``far`` first and then every ``far_seconds``."""
    dollars = 0.05 * far_seconds / 3600.0  # what a save may cost at $1 an hour
    interval = Interval(max_seconds=0.02, dollars_per_gb=dollars / 10e-6, dollars_per_hour=1.0)
    spot = Spot(far, steps=steps, interval=interval, local=local, run=TrainingRun(script="levels.py"))
    started = time.monotonic()
    saved = spot.restore()
    state = int((saved.part() / "state").read_text()[:20]) if saved else 1
    first = saved.step if saved else 0

    def write(folder: Path) -> None:
        (folder / "state").write_text(f"{state:020}" + "x" * 9_980)

    level = "none" if saved is None else "local" if str(saved.path).startswith(f"{local}/") else "far"
    sys.stdout.write(f"from {first} {level} {time.monotonic() - started:.6f}\n")
    sys.stdout.flush()
    for step in range(first, steps):
        time.sleep(STEP_SECONDS)
        state = (state * FACTOR + step) % PRIME
        spot.after(step + 1, write)
        if spot.should_stop():
            sys.stdout.write(f"stopped {step + 1}\n")
            spot.finish()
            return
    with spot.ending():
        spot.save(steps, write, last=True)
    spot.finish(steps)
    sys.stdout.write(f"ended {state}\n")


class Machine:
    """A far directory and a local one, and processes that train with both."""

    def __init__(self, folder: Path, steps: int, far_seconds: float = 3600.0) -> None:
        self.far, self.root = folder / "far", folder / "local"
        self.local = local_folder(self.root, str(self.far))
        self.steps, self.far_seconds = steps, far_seconds
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        """Start the training."""
        arguments = [str(self.far), str(self.root), str(self.steps), str(self.far_seconds)]
        environment = {name: text for name, text in os.environ.items() if not name.startswith("GPU_SPOT_")}
        environment["PYTHONPATH"] = str(Path(__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, __file__, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self.process

    def kill(self) -> None:
        """Kill the process as an out-of-memory killer does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def lose(self) -> None:
        """Lose the machine's own storage."""
        shutil.rmtree(self.root, ignore_errors=True)

    def wait_for(self, step: int) -> None:
        """Wait for a local checkpoint of at least a step, and any of the other level."""
        wait_until(lambda: newest(self.local) >= step and newest(self.far) > 0, interval_seconds=0.005)


def newest(folder: Path) -> int:
    """Return the step of the newest checkpoint; -1 if there is none. Its manifest must be readable."""
    steps = [step for path in folder.glob("step-*") if (step := step_of(path.name)) is not None]
    return max(steps, default=-1)


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
