"""A job's own command, really run: cloned, started, signalled and resumed, while the clock is coupled to it.

Its room is the seam between simulated and real time: all else on an instance is simulated in no time, and
while such a command runs simulated time passes ``PACE`` times as fast as it does here. Time stands still
while the command saves, so that a slow machine loses nothing that a fast one keeps.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_spot.nodes.code_host import CodeHost
from pulumi_on_moto.errors import LocalCloudError

PACE: Final = 360.0
"""Simulated seconds for each real one."""
SAVES_IN: Final = 30.0
"""Real seconds that a command may take to save, on however slow a machine."""
_LOOK_EVERY: Final = 10.0
_TOLD_EVERY: Final = 300.0
"""Simulated seconds after which the agent looks at it, and everybody else does."""
_STEP: Final = re.compile(r"\bstep (\d+)\b")
PLAYED: Final = ("install", "runuser", "rm", "mv")
"""The commands that are run; users, owners and the network of an instance are not played."""
_OURS: Final = "/var/lib/gpu-spot/"
"""What lies below stands on each instance's own disk."""


@dataclass(frozen=True, slots=True)
class RealWork:
    """What real commands find around themselves: the code host that stands for ``host``, such as a URL."""

    code: CodeHost
    host: str

    def run(self, argv: Sequence[str], environment: Mapping[str, str], disk: Path) -> str:
        """Run one of the commands ``PLAYED`` as ourselves, on an instance whose disk is that folder.

        Raises ``subprocess.CalledProcessError``; ``LocalCloudError`` for a path that is elsewhere.
        """
        match list(argv):
            case ["runuser", "--user", _, "--", *rest]:
                words = rest
            case ["install", "--directory", *rest]:
                words = ["mkdir", "--parents", *(word for word in rest if not word.startswith("--"))]
            case words:
                pass
        words = [here(word, disk) for word in words]
        if outside := [
            word for word in words if word.startswith("/") and not Path(word).is_relative_to(disk)
        ]:
            raise LocalCloudError(f"{' '.join(argv)}: {outside[0]} is not on the instance's own disk, {disk}")
        env = {**os.environ, **self.code.environment(self.host, environment)}
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)  # noqa: S603
        return done.stdout


def here(word: str, disk: Path) -> str:
    """Return an argument, or a variable's value, with its path on the instance's own disk."""
    return f"{disk}{word}" if word.startswith(_OURS) else word


class RealProcess:
    """A command that runs; ``subprocess.Popen`` for the agent, paced by the simulated clock of the instance.

    ``clock`` tells simulated time. What it says goes to ``output``, and by that its steps are known: the last
    "step N" counts. Where it begins is told by the name of its newest checkpoint.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        disk: Path,
        place: Path,
        clock: Callable[[], float],
        output: Path,
    ) -> None:
        self._clock = clock
        found = sorted(Path(environment["GPU_SPOT_CHECKPOINTS"]).glob("step-*.json"))
        self.first_step = int(found[-1].stem.partition("-")[2]) if found else 0
        self.loads = 0.0
        env = {name: here(value, disk) for name, value in environment.items()}
        for name in ("HOME", "TMPDIR"):
            if name in env:
                Path(env[name]).mkdir(parents=True, exist_ok=True)
        self._output = output
        with output.open("wb") as file:
            self._process = subprocess.Popen(  # noqa: S603
                list(argv),
                env=env,
                cwd=here(str(place), disk),
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._began = clock(), time.perf_counter()
        self._told = False

    @property
    def step(self) -> int:
        """The steps that it has told of."""
        told = _STEP.findall(self._output.read_text(errors="replace"))
        return int(told[-1]) if told else self.first_step

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self._process.poll() is not None

    @property
    def next_checkpoint(self) -> float:
        """When to look again: nobody knows when it writes."""
        return self._quiet(_LOOK_EVERY)

    @property
    def quiet_until(self) -> float:
        """When others are to look: its end is noticed by then."""
        return self._quiet(_TOLD_EVERY)

    def poll(self) -> int | None:
        """Return its exit code; while there is none let it have the time that has passed for everybody else.

        Raises ``LocalCloudError`` when it was told to stop and does not.
        """
        began, here_began = self._began
        ends = here_began + (self._clock() - began) / PACE
        if self._told:
            ends = time.perf_counter() + SAVES_IN
        while (code := self._process.poll()) is None and time.perf_counter() < ends:
            time.sleep(0.01)
        if code is None and self._told:
            raise LocalCloudError(f"{self._process.args!r} goes on, {SAVES_IN:g} s after its SIGTERM")
        return code

    def _quiet(self, seconds: float) -> float:
        return 0.0 if self._told or self.has_ended else self._clock() + seconds

    def signal(self, number: int) -> None:
        """Signal its process group. SIGKILL: that was it."""
        self._told = self._told or number == signal.SIGTERM
        if self._process.poll() is None:
            os.killpg(self.pid, number)
        if number == signal.SIGKILL:
            self._process.wait()
