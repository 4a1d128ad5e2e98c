"""The simulated training process: it reads, saves and resumes, but does not compute."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any, Final

from pulumi_on_moto.errors import LocalCloudError
from rehearsal.machines.machine import SimulatedHost
from userdata.agent.storage.volume.fill import MARKER

MAX_CHECKPOINTS: Final = 3
"""Number of retained checkpoints."""
_NAME: Final = "step-{:08d}.json"


@dataclass(frozen=True, slots=True)
class TrainingProfile:
    """Assumed parameters of the training.

    A step takes ``step_seconds``; a checkpoint is written every ``checkpoint_steps``. Loading until the first
    step takes ``load_seconds``, saving after SIGTERM ``save_seconds``. It is done after ``steps``.

    An EBS snapshot copies: a dataset of ``dataset_gib`` once, ``checkpoint_mib`` for every
    checkpoint (170 million parameters with the two moments of Adam, 12 bytes each), ``log_mib`` for every
    step. A resumed run first reads a checkpoint. With a dataset on its own fresh volume, a run waits for the
    first ``first_batches_mib``; later reads do not delay it.
    """

    step_seconds: float = 30.0
    checkpoint_steps: int = 20
    load_seconds: float = 20.0
    save_seconds: float = 10.0
    steps: float = math.inf
    dataset_gib: float = 60.0
    checkpoint_mib: float = 2048.0
    log_mib: float = 0.5
    first_batches_mib: float = 1024.0


class TrainingProcess:
    """A fake ``subprocess.Popen`` in simulated time.

    Its state after each step depends on the dataset and all earlier steps, so a resume detects a lost or
    wrong checkpoint.
    """

    def __init__(
        self,
        profile: TrainingProfile,
        environment: dict[str, str],
        clock: Callable[[], float],
        pid: int,
        disk: SimulatedHost,
    ) -> None:
        self.pid = pid
        self._disk = disk
        self._profile = profile
        self._clock = clock
        self._checkpoints = Path(environment["GPU_SPOT_CHECKPOINTS"])
        self._done_file = Path(environment["GPU_SPOT_DONE"])
        self._progress_file = Path(environment["GPU_SPOT_TELL"])
        self._dataset = _digest_of(Path(environment["GPU_SPOT_DATASETS"]))
        self.first_step, self._state = self._resume()
        self._written = self.first_step
        reads = disk.first_read(profile.checkpoint_mib) if self.first_step else 0.0
        self.loads = profile.load_seconds + reads + disk.dataset_read(profile.first_batches_mib)
        """Seconds from its start to its first step."""
        self._begin = clock() + self.loads
        self._stop_at: float | None = None
        self._stop_step = 0
        self._code: int | None = None

    @property
    def step(self) -> int:
        """Number of completed steps."""
        running = max(0.0, self._clock() - self._begin)
        step = self.first_step + math.floor(running / self._profile.step_seconds + 1e-9)
        return int(min(step, self._profile.steps, math.inf if self._stop_at is None else self._stop_step))

    @property
    def next_checkpoint(self) -> float:
        """Time of the next periodic checkpoint; 0 while it stops."""
        if self._stop_at is not None or self._code is not None:
            return 0.0
        every = self._profile.checkpoint_steps
        return self._when((self._written // every + 1) * every)

    @property
    def quiet_until(self) -> float:
        """Time until which it needs no poll: its last step; 0 while it stops."""
        if self._stop_at is not None or self._code is not None:
            return 0.0
        return self._when(self._profile.steps)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, as of the last `poll`."""
        return self._code is not None

    def poll(self) -> int | None:
        """Write due checkpoints and the progress; return the exit code, None while it runs."""
        if self._code is None:
            self._catch_up()
            self._report_progress()
            if self.step >= self._profile.steps:
                self._save(self.step)
                self._done_file.touch()
                self._code = 0
            elif self._stop_at is not None and self._clock() >= self._stop_at:
                self._save(self.step)
                self._code = 0
        return self._code

    def signal(self, number: int) -> None:
        """SIGTERM: finish the step, save, exit with 0. SIGKILL: end at once."""
        if number == SIGKILL and self._code is None:
            self._catch_up()
            self._code = -number
        elif number == SIGTERM and self._code is None and self._stop_at is None:
            self._stop_step = self.step + 1 if self._clock() >= self._begin else self.first_step
            ends = self._when(self._stop_step)
            self._stop_at = max(ends, self._clock()) + self._profile.save_seconds

    def _when(self, step: float) -> float:
        """Return when a step is completed."""
        return self._begin + (step - self.first_step) * self._profile.step_seconds

    def _catch_up(self) -> None:
        every = self._profile.checkpoint_steps
        for step in range((self._written // every + 1) * every, self.step + 1, every):
            self._save(step)

    def _report_progress(self) -> None:
        """Write the progress file as of the last step, if the number of steps is known."""
        if (
            self._profile.steps == math.inf
            or self._clock() < self._begin
            or not self._progress_file.parent.is_dir()
        ):
            return
        at = self._when(self.step)
        self._progress_file.write_text(json.dumps({"step": self.step, "steps": self._profile.steps}))
        os.utime(self._progress_file, (at, at))

    def _resume(self) -> tuple[int, str]:
        checkpoints = sorted(self._checkpoints.glob("step-*.json"))
        start = hashlib.sha256(self._dataset.encode()).hexdigest()
        if not checkpoints:
            return 0, start
        saved: dict[str, Any] = json.loads(checkpoints[-1].read_text())
        if saved["state"] != _after(start, saved["step"]):
            raise LocalCloudError(
                f"checkpoint {checkpoints[-1].name}: wrong state for {saved['step']} steps on this dataset"
            )
        return int(saved["step"]), str(saved["state"])

    def _save(self, step: int) -> None:
        if step == self._written:
            return
        self._state = _after(self._state, step - self._written)
        self._disk.wrote(self._profile.checkpoint_mib + self._profile.log_mib * (step - self._written))
        self._written = step
        path = self._checkpoints / _NAME.format(step)
        new = path.with_suffix(".new")
        new.write_text(json.dumps({"step": step, "state": self._state}))
        now = self._clock()
        os.utime(new, (now, now))
        new.replace(path)
        for old in sorted(self._checkpoints.glob("step-*.json"))[:-MAX_CHECKPOINTS]:
            old.unlink()


def _after(state: str, steps: int) -> str:
    for _ in range(steps):
        state = hashlib.sha256(state.encode()).hexdigest()
    return state


def _digest_of(dataset: Path) -> str:
    """Return a SHA-256 over the dataset, empty if the job has none."""
    if not (dataset / MARKER).exists():
        return ""
    whole = hashlib.sha256()
    for path in sorted(path for path in dataset.rglob("*") if path.is_file()):
        whole.update(path.read_bytes())
    return whole.hexdigest()
