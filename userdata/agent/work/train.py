"""Run a training job.

Its code at the pinned revision, restarted when it fails, stopped in time, marked when done.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from userdata.agent.aws.jobs import JobState
from userdata.agent.config.model import Training
from userdata.agent.config.names import JOB_HOME, JOB_TMP
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError, LeaseLostError
from userdata.agent.machine.host import Host
from userdata.agent.work import notice, process, tell
from userdata.agent.work.heart import Heart
from userdata.agent.work.process import JobProcess, Process, Spawn

_FIRST_BACKOFF: Final = 5.0
_LONGEST_BACKOFF: Final = 300.0
_RENEW_EVERY: Final = 30.0
_LOOK_EVERY: Final = 0.5
_LOST_LEASE_GRACE: Final = 60.0


class JobTable(Protocol):
    """What the trainer needs of the job table."""

    def finished(self) -> bool:
        """Tell whether the job has ended for good."""
        ...

    def mark(self, state: JobState) -> None:
        """Write the job's state."""
        ...

    def take_down(self) -> None:
        """Let the capacity go."""
        ...


def newest_checkpoint(directory: Path) -> float:
    """Return when the newest file below ``directory``, at any depth, was changed (epoch seconds); 0: none is.

    What begins with a dot is not a checkpoint yet. Links count by themselves, wherever they lead; what is
    rotated away meanwhile does not. Folders do not count either: to delete from one is no progress.
    """
    newest, folders = 0.0, [str(directory)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    with contextlib.suppress(OSError):
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
                        else:
                            newest = max(newest, entry.stat(follow_symlinks=False).st_mtime)
        except OSError:
            continue
    return newest


class Trainer:
    """Supervises one training process; `run` returns when the job ended or the instance is being taken.

    Args:
        renew: renews the volume's lease; None without a volume.
        done_file: the command may create it to say "done" where its exit code cannot tell (after a SIGTERM).
    """

    def __init__(
        self,
        training: Training,
        code: Path,
        data: Path,
        directory: Path,
        job: JobTable,
        heart: Heart,
        host: Host,
        clock: Clock,
        renew: Callable[[], None] | None,
        spawn: Spawn | None = None,
    ) -> None:
        self._training = training
        self._code = code
        self._data = data
        self._directory = directory
        self._job = job
        self._heart = heart
        self._host = host
        self._clock = clock
        self._renew = renew
        self._spawn = spawn or self._start
        self._process: JobProcess | None = None
        self._stopping = False
        self._renewed = clock.monotonic()

    @property
    def checkpoints(self) -> Path:
        """Where the job's checkpoints stand."""
        return self._data / "checkpoints" / self._training.job

    @property
    def done_file(self) -> Path:
        """The file by which the command says that nothing is left to do."""
        return self.checkpoints / f".done-{self._training.revision}"

    def stop(self) -> None:
        """Tell the command, and all of its process group, to save and end (SIGTERM, once).

        What is left shortly before the notice's deadline is killed. Nothing is restarted.
        """
        self._stopping = True
        if self._process is not None:
            wall = self._clock.wall()
            self._process.stop(process.seconds_to_save(notice.read(self._directory), wall))

    def run(self) -> bool:
        """Train; tell whether the job ended for good (done or failed).

        Raises:
            LeaseLostError: another instance has taken the job over; the training has been stopped.
        """
        failures = 0
        self._job.mark("running")
        while not self._stopping:
            before = newest_checkpoint(self.checkpoints)
            code = self._one_run(failures)
            if self.done_file.exists() or (code == 0 and not self._stopping):
                return self._end("done")
            if self._stopping:
                break
            failures = 1 if newest_checkpoint(self.checkpoints) > before else failures + 1
            log.error("training failed", code=code, failures=failures, allowed=self._training.max_restarts)
            if failures > self._training.max_restarts:
                return self._end("failed")
            self._pause(min(_FIRST_BACKOFF * 2 ** (failures - 1), _LONGEST_BACKOFF))
        self._heart.leave(0)
        return False

    def _one_run(self, restarts: int) -> int:
        log.info("training starts", command=list(self._training.command), restarts=restarts)
        tell.make_place(self._directory, 0)
        started = self._spawn(list(self._training.command), self._environment(restarts), self._code)
        user = process.user_id(self._training.user)
        self._process = JobProcess(started, self._host, self._clock, user)
        if self._stopping:  # told between the check and the start
            self.stop()
        try:
            while (code := self._process.poll()) is None:
                self._look_after()
                self._clock.sleep(_LOOK_EVERY)
        except LeaseLostError:
            self._end_process()
            raise
        return code

    def _look_after(self) -> None:
        self._heart.beat([0])
        if self._renew and self._clock.monotonic() - self._renewed >= _RENEW_EVERY:
            self._renewed = self._clock.monotonic()
            try:
                self._renew()
            except LeaseLostError:
                raise
            except AgentError as error:
                log.warning("lease not renewed", error=str(error))

    def _end_process(self) -> None:
        """Stop the training of a lost lease: it must not write beside its successor."""
        assert self._process is not None
        log.error("lease lost: training is stopped")
        self._stopping = True
        self._process.stop(_LOST_LEASE_GRACE)
        while self._process.poll() is None:
            self._clock.sleep(_LOOK_EVERY)
        self._heart.leave(0)

    def _pause(self, seconds: float) -> None:
        end = self._clock.monotonic() + seconds
        while not self._stopping and self._clock.monotonic() < end:
            self._look_after()
            self._clock.sleep(_LOOK_EVERY)

    def _end(self, state: JobState) -> bool:
        self._job.mark(state)
        self._job.take_down()
        self._heart.leave(0)
        return True

    def _environment(self, restarts: int) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(JOB_HOME),
            "USER": self._training.user,
            "LOGNAME": self._training.user,
            "XDG_CACHE_HOME": str(JOB_HOME / ".cache"),
            "TMPDIR": str(JOB_TMP),
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            **self._training.environment,
            "GPU_SPOT_JOB": self._training.job,
            "GPU_SPOT_DATASETS": str(self._data / "datasets"),
            "GPU_SPOT_CHECKPOINTS": str(self.checkpoints),
            "GPU_SPOT_ARTIFACTS": str(self._data / "artifacts" / self._training.job),
            "GPU_SPOT_NOTICE": str(self._directory / "notice.json"),
            "GPU_SPOT_DONE": str(self.done_file),
            "GPU_SPOT_TELL": str(tell.tell_file(self._directory, 0)),
            "GPU_SPOT_RESTARTS": str(restarts),
        }

    def _start(self, argv: list[str], env: dict[str, str], cwd: Path) -> Process:
        return process.spawn(argv, self._training.user, env, cwd)
