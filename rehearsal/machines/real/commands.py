"""A job's own command, really run: cloned, started, signalled and resumed, while the clock is coupled to it.

Its room is the seam between simulated and real time: all else on an instance is simulated in no time, and
while such a command trains simulated time passes ``pace`` times as fast as it does here. Time stands still
while the command starts and while it saves, so that a slow machine loses nothing that a fast one keeps.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pulumi_on_moto.errors import LocalCloudError
from rehearsal.machines.real.code_host import CodeHost
from rehearsal.machines.real.dates import CheckpointDates, stamp
from userdata.agent.tasks.recording import INTERRUPTIONS_VARIABLE

STARTS_IN: Final = 120.0
"""Real seconds after which time passes for a command that has told of no step."""
SAVES_IN: Final = 60.0
"""Real seconds that a command may take to save, on however slow a machine."""
_POLL_SECONDS: Final = 10.0
_REPORT_SECONDS: Final = 300.0
"""Simulated seconds after which the agent looks at it, and everybody else does."""
_STEP: Final = re.compile(r"\bstep (\d+)\b")
PLAYED: Final = ("install", "runuser", "rm", "mv")
"""The commands that are run; users, owners and the network of an instance are not played."""
_OURS: Final = "/var/lib/gpu-spot/"
"""What lies below stands on each instance's own disk."""


@dataclass(frozen=True, slots=True)
class RealWork:
    """What real commands find around themselves: the code host that stands for ``host``, such as a URL.

    ``pace`` is the simulated seconds for each real one, ``programs`` the folder of the job's Python, if any,
    and in ``library`` lies what it can import beside that.
    """

    code: CodeHost
    host: str
    pace: float
    programs: Path | None = None
    library: Path | None = None

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
        words = [on_disk(word, disk) for word in words]
        if outside := [
            word for word in words if word.startswith("/") and not Path(word).is_relative_to(disk)
        ]:
            raise LocalCloudError(f"{' '.join(argv)}: {outside[0]} is not on the instance's own disk, {disk}")
        env = {**os.environ, **self.code.environment(self.host, environment)}
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)  # noqa: S603
        return done.stdout


def on_disk(word: str, disk: Path) -> str:
    """Return an argument, or a variable's value, with its path on the instance's own disk."""
    return f"{disk}{word}" if word.startswith(_OURS) else word


def with_python(
    environment: Mapping[str, str], programs: Path | None, library: Path | None
) -> dict[str, str]:
    """Return an environment in which the programs of a folder come first, and a library can be imported."""
    result = dict(environment)
    if programs is not None:
        result["PATH"] = f"{programs}:{environment.get('PATH', os.defpath)}"
        result["VIRTUAL_ENV"] = str(programs.parent)
    if library is not None:
        result["PYTHONPATH"] = str(library)
    return result


def begins_at(output: Path, progress_file: Path) -> int | None:
    """Return the step at which a command begins, None as long as it has told of none.

    That is the first "step N" of what it says, or what its sign of life tells first: where it goes on.
    """
    if match := _STEP.search(output.read_text(errors="replace")):
        return int(match[1])
    return _reported_step(progress_file)


def is_at(output: Path, progress_file: Path) -> int:
    """Return the last step that a command has told of, 0 where it has told of none."""
    return max(
        [*map(int, _STEP.findall(output.read_text(errors="replace"))), _reported_step(progress_file) or 0]
    )


def _reported_step(progress_file: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        return int(json.loads(progress_file.read_text())["step"])
    return None


def kill_all(pid: int) -> None:
    """Kill a process with all below it: a launcher starts others in sessions of their own."""
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)  # noqa: S607
    parents = {
        int(process_id): int(parent) for process_id, parent in map(str.split, listing.stdout.splitlines())
    }
    process_ids = [pid]
    for process_id in process_ids:  # grows while it is walked
        process_ids += [child for child, parent in parents.items() if parent == process_id]
    for process_id in process_ids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGKILL)


class RealProcess:
    """A command that runs; ``subprocess.Popen`` for the agent, paced by the simulated clock of the instance.

    ``clock`` tells simulated time. What it says goes to ``output``. It begins at the first step that it tells
    of, which is waited for.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        disk: Path,
        cwd: Path,
        clock: Callable[[], float],
        pace: float,
    ) -> None:
        self._clock, self._pace = clock, pace
        self.loads = 0.0
        env = {name: on_disk(value, disk) for name, value in environment.items()}
        for name in ("HOME", "TMPDIR"):
            if name in env:
                Path(env[name]).mkdir(parents=True, exist_ok=True)
        if often := env.get(INTERRUPTIONS_VARIABLE):
            # An hour of its own is ``pace`` hours of the market.
            env[INTERRUPTIONS_VARIABLE] = f"{float(often) * pace:.6g}"
        self._output = disk / "output"
        self._progress_file = Path(env.get("GPU_SPOT_TELL", disk / "tell"))
        self._progress_file.unlink(missing_ok=True)  # what the one before has told is not its own
        with self._output.open("wb") as file:
            self._process = subprocess.Popen(  # noqa: S603
                list(argv),
                env=env,
                cwd=on_disk(str(cwd), disk),
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._stopping = False
        self.first_step = self._started()
        self._began = clock(), time.perf_counter()
        folder = Path(environment["GPU_SPOT_CHECKPOINTS"])
        self._dates = CheckpointDates(folder, clock, stamp(disk / "stamp"))

    def _started(self) -> int:
        """Wait until it tells of a step; return that."""
        end = time.perf_counter() + STARTS_IN
        while (step := begins_at(self._output, self._progress_file)) is None:
            if self._process.poll() is not None or time.perf_counter() > end:
                return 0
            time.sleep(0.01)
        return step

    @property
    def step(self) -> int:
        """The steps that it has told of."""
        return max(is_at(self._output, self._progress_file), self.first_step)

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self._process.poll() is not None

    @property
    def next_checkpoint(self) -> float:
        """When to look again: nobody knows when it writes."""
        return self._quiet(_POLL_SECONDS)

    @property
    def quiet_until(self) -> float:
        """When others are to look: its end is noticed by then."""
        return self._quiet(_REPORT_SECONDS)

    def poll(self) -> int | None:
        """Return its exit code; while there is none let it have the time that has passed for everybody else.

        Raises ``LocalCloudError`` when it was told to stop and does not.
        """
        began, here_began = self._began
        ends = here_began + (self._clock() - began) / self._pace
        if self._stopping:
            ends = time.perf_counter() + SAVES_IN
        while (code := self._process.poll()) is None and time.perf_counter() < ends:
            time.sleep(0.01)
        if code is None and self._stopping:
            raise LocalCloudError(f"{self._process.args!r} goes on, {SAVES_IN:g} s after its SIGTERM")
        if code is not None:
            self._dates.settle()
        return code

    def _quiet(self, seconds: float) -> float:
        return 0.0 if self._stopping or self.has_ended else self._clock() + seconds

    def signal(self, number: int) -> None:
        """Signal its process group. SIGKILL: that was it, with all that it started."""
        self._dates.note_signal()
        self._stopping = self._stopping or number == signal.SIGTERM
        if number == signal.SIGKILL:
            kill_all(self.pid)
            self._process.wait()
            self._dates.settle()
        elif self._process.poll() is None:
            os.killpg(self.pid, number)
