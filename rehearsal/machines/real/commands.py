"""A job's real command as a process, coupled to simulated time.

While the command trains, simulated time passes ``pace`` times as fast as real time; everything else on an
instance takes no real time. Simulated time does not pass while the command starts and while it saves: the
results do not depend on the speed of the machine.
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
"""Maximum real seconds to wait for the first step of a command."""
SAVES_IN: Final = 60.0
"""Maximum real seconds of a command for saving, even on a slow machine."""
_POLL_SECONDS: Final = 10.0
_REPORT_SECONDS: Final = 300.0
"""Simulated seconds between polls of the agent, and between events visible to others."""
_STEP: Final = re.compile(r"\bstep (\d+)\b")
PLAYED: Final = ("install", "runuser", "rm", "mv")
"""Commands that really run; users, owners and network of an instance are not simulated."""
_OURS: Final = "/var/lib/gpu-spot/"
"""Paths below it are on each instance's simulated disk."""


@dataclass(frozen=True, slots=True)
class RealWork:
    """Environment of real commands: the code host that replaces ``host`` (a URL).

    ``pace`` is the number of simulated seconds per real second, ``programs`` the folder of the job's Python,
    if any, and ``library`` an additional import path.
    """

    code: CodeHost
    host: str
    pace: float
    programs: Path | None = None
    library: Path | None = None

    def run(self, argv: Sequence[str], environment: Mapping[str, str], disk: Path) -> str:
        """Run one of the commands ``PLAYED`` as the current user; ``disk`` is the instance's disk.

        Raises ``subprocess.CalledProcessError``; ``LocalCloudError`` for a path outside the disk.
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
    """Return an argument or variable value with its path mapped to the instance's disk."""
    return f"{disk}{word}" if word.startswith(_OURS) else word


def with_python(
    environment: Mapping[str, str], programs: Path | None, library: Path | None
) -> dict[str, str]:
    """Return an environment with ``programs`` first in PATH and ``library`` as PYTHONPATH."""
    result = dict(environment)
    if programs is not None:
        result["PATH"] = f"{programs}:{environment.get('PATH', os.defpath)}"
        result["VIRTUAL_ENV"] = str(programs.parent)
    if library is not None:
        result["PYTHONPATH"] = str(library)
    return result


def begins_at(output: Path, progress_file: Path) -> int | None:
    """Return the first step of a command, None until it reports one.

    It is the first "step N" of its output, or the first step of its progress file.
    """
    if match := _STEP.search(output.read_text(errors="replace")):
        return int(match[1])
    return _reported_step(progress_file)


def is_at(output: Path, progress_file: Path) -> int:
    """Return the last step that a command reported, 0 if none."""
    return max(
        [*map(int, _STEP.findall(output.read_text(errors="replace"))), _reported_step(progress_file) or 0]
    )


def _reported_step(progress_file: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        return int(json.loads(progress_file.read_text())["step"])
    return None


def kill_all(pid: int) -> None:
    """Kill a process with all descendants; a launcher starts children in their own sessions."""
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)  # noqa: S607
    parents = {
        int(process_id): int(parent) for process_id, parent in map(str.split, listing.stdout.splitlines())
    }
    process_ids = [pid]
    for process_id in process_ids:  # grows during the iteration
        process_ids += [child for child, parent in parents.items() if parent == process_id]
    for process_id in process_ids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGKILL)


class RealProcess:
    """A running command with the interface of ``subprocess.Popen``, paced by the simulated clock.

    ``clock`` returns simulated time. Its output goes to the file ``output``. The constructor waits for its
    first step.
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
            # An hour of the command is ``pace`` simulated hours.
            env[INTERRUPTIONS_VARIABLE] = f"{float(often) * pace:.6g}"
        self._output = disk / "output"
        self._progress_file = Path(env.get("GPU_SPOT_TELL", disk / "tell"))
        self._progress_file.unlink(missing_ok=True)  # of the previous process
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
        """Wait for the first reported step and return it."""
        end = time.perf_counter() + STARTS_IN
        while (step := begins_at(self._output, self._progress_file)) is None:
            if self._process.poll() is not None or time.perf_counter() > end:
                return 0
            time.sleep(0.01)
        return step

    @property
    def step(self) -> int:
        """The last reported step."""
        return max(is_at(self._output, self._progress_file), self.first_step)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    @property
    def next_checkpoint(self) -> float:
        """Time of the next poll; when it writes is unknown."""
        return self._quiet(_POLL_SECONDS)

    @property
    def quiet_until(self) -> float:
        """Time by which its end becomes visible to others."""
        return self._quiet(_REPORT_SECONDS)

    def poll(self) -> int | None:
        """Return its exit code; while it runs, first wait until real time matches simulated time.

        Raises ``LocalCloudError`` if it does not end after SIGTERM.
        """
        began, here_began = self._began
        ends = here_began + (self._clock() - began) / self._pace
        if self._stopping:
            ends = time.perf_counter() + SAVES_IN
        while (code := self._process.poll()) is None and time.perf_counter() < ends:
            time.sleep(0.01)
        if code is None and self._stopping:
            raise LocalCloudError(f"{self._process.args!r} still runs {SAVES_IN:g} s after SIGTERM")
        if code is not None:
            self._dates.settle()
        return code

    def _quiet(self, seconds: float) -> float:
        return 0.0 if self._stopping or self.has_ended else self._clock() + seconds

    def signal(self, number: int) -> None:
        """Signal its process group; SIGKILL kills all descendants."""
        self._dates.note_signal()
        self._stopping = self._stopping or number == signal.SIGTERM
        if number == signal.SIGKILL:
            kill_all(self.pid)
            self._process.wait()
            self._dates.settle()
        elif self._process.poll() is None:
            os.killpg(self.pid, number)
