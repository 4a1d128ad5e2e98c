"""A job's real command as a process, coupled to simulated time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pulumi_on_moto.errors import LocalCloudError
from rehearsal.machines.machine import SimulatedHost
from rehearsal.machines.node import SimulatedNode
from tests.real.job.code_host import CodeHost
from tests.real.job.repository import CheckpointDates, stamp
from tests.real.service_host import kill_all
from userdata.agent.machine.errors import AgentError
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


@dataclass(slots=True)
class RealWork:
    """Runs a job's commands really; the code host replaces ``host`` (a URL)."""

    code: CodeHost
    host: str
    pace: float
    environment: Mapping[str, str] = field(default_factory=dict)
    results: Mapping[str, str] = field(default_factory=dict)

    def node(self) -> type[SimulatedNode]:
        work = self

        class Host(SimulatedHost):
            def run(
                self, argv: Sequence[str], timeout: float = 60, stdin: str = "", environment: Any = None
            ) -> str:
                if argv[0] in PLAYED:
                    return work.run(argv, environment or {}, self._data.parent)
                return super().run(argv, timeout, stdin, environment)

        class Node(SimulatedNode):
            host_type = Host

            def _started(self, argv: list[str], environment: dict[str, str], cwd: Path) -> Any:
                env, clock = {**environment, **work.environment}, self._clock.wall
                return RealProcess(argv, env, self._disk, cwd, clock, work.pace, work._keep)

        return Node

    def _keep(self, artifacts: Path) -> None:
        self.results = digests(artifacts)

    def run(self, argv: Sequence[str], environment: Mapping[str, str], disk: Path) -> str:
        """Run one of the commands ``PLAYED`` as the current user; ``disk`` is the instance's disk."""
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
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            last_line = (done.stderr.strip() or "no output").splitlines()[-1]
            raise AgentError(f"{argv[0]}: exit {done.returncode}: {last_line}")
        return done.stdout


def on_disk(word: str, disk: Path) -> str:
    """Return an argument or variable value with its path mapped to the instance's disk."""
    return f"{disk}{word}" if word.startswith(_OURS) else word


def digests(folder: Path) -> Mapping[str, str]:
    """Return the SHA-256 of each result below a folder, by relative path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def begins_at(output: Path, progress_file: Path) -> int | None:
    if match := _STEP.search(output.read_text(errors="replace")):
        return int(match[1])
    return _reported_step(progress_file)


def is_at(output: Path, progress_file: Path) -> int:
    return max(
        [*map(int, _STEP.findall(output.read_text(errors="replace"))), _reported_step(progress_file) or 0]
    )


def _reported_step(progress_file: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        return int(json.loads(progress_file.read_text())["step"])
    return None


class RealProcess:
    """A running command with the interface of ``subprocess.Popen``, paced by the simulated clock."""

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        disk: Path,
        cwd: Path,
        clock: Callable[[], float],
        pace: float,
        on_success: Callable[[Path], None] = lambda artifacts: None,
    ) -> None:
        self._clock, self._pace, self._on_success = clock, pace, on_success
        self._artifacts = Path(environment["GPU_SPOT_ARTIFACTS"])
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
            self._process = subprocess.Popen(
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
        end = time.perf_counter() + STARTS_IN
        while (step := begins_at(self._output, self._progress_file)) is None:
            if self._process.poll() is not None or time.perf_counter() > end:
                return 0
            time.sleep(0.01)
        return step

    @property
    def step(self) -> int:
        return max(is_at(self._output, self._progress_file), self.first_step)

    @property
    def has_ended(self) -> bool:
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
        """Return its exit code; while it runs, first wait until real time matches simulated time."""
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
        if code == 0:
            self._on_success(self._artifacts)
        return code

    def _quiet(self, seconds: float) -> float:
        return 0.0 if self._stopping or self.has_ended else self._clock() + seconds

    def signal(self, number: int) -> None:
        self._dates.note_signal()
        self._stopping = self._stopping or number == signal.SIGTERM
        if number == signal.SIGKILL:
            kill_all(self.pid)
            self._process.wait()
            self._dates.settle()
        elif self._process.poll() is None:
            os.killpg(self.pid, number)
