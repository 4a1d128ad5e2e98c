"""The training process of a rehearsal: it computes nothing, but reads, writes, saves and resumes like one."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any, Final

from pulumi_on_moto.errors import LocalCloudError
from rehearsal.machines.machine import SimulatedHost
from rehearsal.machines.pace import Speeds
from userdata.agent.storage.volume.fill import MARKER

MAX_CHECKPOINTS: Final = 3
"""Checkpoints that stay."""
_NAME: Final = "step-{:08d}.json"
_POLL_SECONDS: Final = 60.0
"""So often somebody looks after a process that does no step: it may have to be given up."""


@dataclass(frozen=True, slots=True)
class TrainingProfile:
    """What the training does. Assumed, and nobody's in particular.

    A step takes ``step_seconds``, a checkpoint is written every ``checkpoint_steps``. From its start to its
    first step the process takes ``load_seconds``, to save when it is told to stop ``save_seconds``. After
    ``steps`` it is done; None: it trains on. ``pace`` says when it is slower than that.

    What an EBS snapshot has to copy: a dataset of ``dataset_gib`` once, ``checkpoint_mib`` for every
    checkpoint (170 million parameters with the two moments of Adam, 12 bytes each), ``log_mib`` for every
    step. What a resumed run reads first is a checkpoint. A dataset on a fresh volume of its own keeps a run
    waiting for its first ``first_batches_mib``; what a step reads later comes in time.
    """

    step_seconds: float = 30.0
    checkpoint_steps: int = 20
    load_seconds: float = 20.0
    save_seconds: float = 10.0
    steps: int | None = None
    dataset_gib: float = 60.0
    checkpoint_mib: float = 2048.0
    log_mib: float = 0.5
    first_batches_mib: float = 1024.0
    pace: Speeds = field(default_factory=Speeds)


class TrainingProcess:
    """A stand-in for ``subprocess.Popen`` in simulated time.

    Its state after each step depends on the dataset and on every step before: a checkpoint that was lost or
    mixed up is found out by whoever resumes from it.
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
        """The steps that are done."""
        running = self._profile.pace.work(self._begin, max(self._begin, self._clock()))
        step = self.first_step + math.floor(running / self._profile.step_seconds + 1e-9)
        if self._profile.steps is not None:
            step = min(step, self._profile.steps)
        return step if self._stop_at is None else min(step, self._stop_step)

    @property
    def next_checkpoint(self) -> float:
        """When it next writes one by itself; not at all while it stops."""
        if self._stop_at is not None or self._code is not None:
            return 0.0
        every = self._profile.checkpoint_steps
        return self._when((self._written // every + 1) * every)

    @property
    def quiet_until(self) -> float:
        """Until when it needs nobody: until its last step, and not at all while it stops.

        While it stands still the next minute needs somebody, who may find that it hangs.
        """
        if self._stop_at is not None or self._code is not None:
            return 0.0
        now, pace = self._clock(), self._profile.pace
        if pace.still_until(now) > now:
            return (now // _POLL_SECONDS + 1) * _POLL_SECONDS
        last = math.inf if self._profile.steps is None else self._when(self._profile.steps)
        return min(last, pace.next_stop(now))

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by what is known: only `poll` looks."""
        return self._code is not None

    def poll(self) -> int | None:
        """Write the checkpoints due by now and tell the step; return the exit code once it has ended."""
        if self._code is None:
            self._catch_up()
            self._report_progress()
            if self._profile.steps is not None and self.step >= self._profile.steps:
                self._save(self.step)
                self._done_file.touch()
                self._code = 0
            elif self._stop_at is not None and self._clock() >= self._stop_at:
                self._save(self.step)
                self._code = 0
        return self._code

    def signal(self, number: int) -> None:
        """SIGTERM: finish the step, save, exit with 0. SIGKILL: that was it."""
        if number == SIGKILL and self._code is None:
            self._catch_up()
            self._code = -number
        elif number == SIGTERM and self._code is None and self._stop_at is None:
            self._stop_step = self.step + 1 if self._clock() >= self._begin else self.first_step
            ends = self._when(self._stop_step)
            self._stop_at = max(ends, self._clock()) + self._profile.save_seconds

    def _when(self, step: int) -> float:
        """Return when a step is done."""
        work = (step - self.first_step) * self._profile.step_seconds
        return self._profile.pace.when(self._begin, work)

    def _catch_up(self) -> None:
        every = self._profile.checkpoint_steps
        for step in range((self._written // every + 1) * every, self.step + 1, every):
            self._save(step)

    def _report_progress(self) -> None:
        """Say how far it is, as of the last step; nothing where nobody knows how far it is to go."""
        if (
            self._profile.steps is None
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
                f"checkpoint {checkpoints[-1].name}: its state is not that of {saved['step']} steps on this dataset"
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
    """Return a SHA-256 over the whole dataset; empty where the job has none."""
    if not (dataset / MARKER).exists():
        return ""
    whole = hashlib.sha256()
    for path in sorted(path for path in dataset.rglob("*") if path.is_file()):
        whole.update(path.read_bytes())
    return whole.hexdigest()
