"""Run a training job.

Its code at the pinned revision, restarted when it fails, stopped in time, marked when done.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts import names
from contracts.agent.config import Training
from userdata.agent.aws.jobs import Jobs
from userdata.agent.lease.renewal import Keeper
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError, LeaseLostError, UnwantedError
from userdata.agent.machine.host import Host
from userdata.agent.work import notice, process
from userdata.agent.work import worker_report_file as tell
from userdata.agent.work.failures import faults
from userdata.agent.work.failures.faults import Breakdown
from userdata.agent.work.failures.inspection import Inspector
from userdata.agent.work.failures.judge import Judge, RunEnd
from userdata.agent.work.failures.stall import Signs, Stillness
from userdata.agent.work.heartbeat import Heart
from userdata.agent.work.process import JobProcess, Process, Spawn
from userdata.agent.work.training import variables
from userdata.agent.work.training.artifacts import Artifacts
from userdata.agent.work.training.environment import OfTheImage, Workplace
from userdata.agent.work.training.output import Output
from userdata.agent.work.training.progress import Steps
from userdata.agent.work.training.record import Recorder

_LOOK_EVERY: Final = 0.5
_GLANCE_EVERY: Final = 10.0
"""Seconds between two looks at the GPUs: the driver keeps some seconds of what they did."""
_SEE_EVERY: Final = 60.0
_GONE_AFTER: Final = 6
"""Looks in a row with a GPU missing that end a run: what waits for that GPU waits for ever."""
_DONE_SECONDS: Final = 3600.0
"""For the results of a job that is done; its GPUs are paid meanwhile."""
_LEFT_SECONDS: Final = 300.0
"""For what any other end leaves behind; a notice leaves less."""
_HANGING_GRACE: Final = 120.0
"""As long as a spot notice leaves: whoever saves in time then saves in time here."""


@dataclass(frozen=True)
class TrainingPlace:
    """Where a job stands: ``code``, ``data``, the ``directory`` of the agent's own files, ``artifacts``."""

    code: Path
    data: Path
    directory: Path
    artifacts: Path


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
    """Supervises one training job; `run` returns when it ended or the instance is being taken or no good.

    Args:
        keeper: keeps the job's lease.
        make_ready: brings code and environment here; what it raises is judged like a failure of the command.
        ring: tells people of one of ``names.JOB_METRICS``.
        output: what the command's output passes through.
        within: where the command runs; None: with what the machine image has.
        look_after: called again and again beside all that; it returns at once.
        results: brings to S3 what the command leaves behind; None: it stays on the volume.
        record: writes down when the command starts and ends; None: nobody does.
        told: what else the command finds in its environment.
    """

    def __init__(
        self,
        training: Training,
        place: TrainingPlace,
        job: Jobs,
        heart: Heart,
        host: Host,
        clock: Clock,
        keeper: Keeper,
        inspector: Inspector,
        make_ready: Callable[[], None],
        ring: Callable[[str], None],
        spawn: Spawn | None = None,
        output: Output | None = None,
        within: Workplace | None = None,
        look_after: Callable[[], None] = lambda: None,
        results: Artifacts | None = None,
        record: Recorder | None = None,
        told: Mapping[str, str] | None = None,
    ) -> None:
        self._look_after_more = look_after
        self._training = training
        self._place = place
        self._job = job
        self._heart = heart
        self._host = host
        self._clock = clock
        self._keeper = keeper
        self._inspector = inspector
        self._make_ready = make_ready
        self._ring = ring
        self._spawn = spawn or self._start
        self._output = output or Output()
        self._within = within or OfTheImage(training.user)
        self._results = results
        self._record = record
        self._told = dict(told or {})
        self._time_is_up = math.inf
        self._process: JobProcess | None = None
        self._stopping = False
        self._is_ready = False
        self._judge = Judge(training, job, inspector, ring, clock, self._look_after)
        self._retries = 0
        self._steps = Steps(place.directory)
        self._newest = 0.0
        """When the newest checkpoint was changed, as seen last."""

    @property
    def checkpoints(self) -> Path:
        """Where the job's checkpoints stand."""
        return self._place.data / "checkpoints" / self._training.job

    @property
    def done_file(self) -> Path:
        """The file by which the command says that nothing is left to do."""
        return variables.done_file(self.checkpoints, self._training.revision, self._retries)

    def stop(self) -> None:
        """Tell the command, and all of its process group, to save and end (SIGTERM, once).

        What is left shortly before the notice's deadline is killed. Nothing is restarted.
        """
        self._stopping = True
        seconds = process.seconds_to_save(notice.read(self._place.directory), self._clock.wall())
        self._time_is_up = min(self._time_is_up, self._clock.monotonic() + seconds)
        if self._process is not None:
            self._process.stop(seconds)

    def run(self) -> RunEnd:
        """Train.

        Raises:
            LeaseLostError: another instance has taken the job over; the training has been stopped.
        """
        try:
            outcome = self._run()
            if outcome != "done":
                self._deliver(_LEFT_SECONDS)
        except LeaseLostError:
            log.error("lease lost: training is stopped")
            self._stopping = True
            self._end_process(self._keeper.grace)
            self._heart.leave(0)
            raise
        self._heart.leave(0)
        return outcome

    def _run(self) -> RunEnd:
        self._job.mark("running")
        self._retries = self._job.retries()
        while not self._stopping:
            before = self._look_for_checkpoint()
            try:
                failure = self._prepare()
            except UnwantedError:
                break
            has_started = failure is None
            if has_started:
                failure = self._one_run()
                if self.done_file.exists() or (failure is None and not self._stopping):
                    return self._done()
            if failure is None or self._stopping:
                break
            what_next = self._judge.after(
                failure, self._newest, has_progressed=self._newest > before, has_started=has_started
            )
            if isinstance(what_next, str):
                return what_next
            self._pause(what_next)
        return "stopped"

    def _done(self) -> RunEnd:
        """End a job whose command is done: it counts once its results are there."""
        missing = self._deliver(_DONE_SECONDS)
        if missing and self._stopping:
            return "stopped"  # the next instance has them on the volume
        return self._judge.end("failed", missing) if missing else self._judge.end("done")

    def _deliver(self, seconds: float) -> str:
        if self._results is None:
            return ""
        end = self._clock.monotonic() + seconds
        return self._results.deliver(lambda: min(end, self._time_is_up), self._look_after)

    def _prepare(self) -> Breakdown | None:
        """Bring here what the command needs; once it is here, it stays."""
        if self._is_ready:
            return None
        try:
            with self._host.attending(self._attend):
                self._make_ready()
            self._attend()  # a lease or an instance that went meanwhile: nothing is started
        except (LeaseLostError, UnwantedError):
            raise
        except (AgentError, OSError) as error:
            return faults.of_error(error)
        self._is_ready = True
        return None

    def _one_run(self) -> Breakdown | None:
        command, restarts = list(self._training.command), self._judge.failures
        log.info("training starts", command=command, restarts=restarts)
        try:
            tell.make_place(self._place.directory, 0)
            self._steps.restart()
            start = self._within.start(command, self._environment(restarts), self._place.code)
            started = self._spawn(start.argv, start.environment, self._place.code)
        except (AgentError, OSError, ValueError) as error:
            return Breakdown(f"{command[0]}: cannot be started: {error}")
        user = process.user_id(self._training.user)
        self._process = JobProcess(started, self._host, self._clock, user)
        if self._stopping:  # told between the check and the start
            self.stop()
        if self._record is not None:
            self._record.started()
        failure = self._watch(self._process)
        if self._record is not None:
            self._record.stopped()
        self._output.settle()
        return failure

    def _watch(self, running: JobProcess) -> Breakdown | None:
        """Return why the process ended, None after exit code 0; one that hangs is ended."""
        begun = self._clock.monotonic()
        stillness = Stillness(60.0 * self._training.stalled_after_minutes, begun)
        glance_at, see_at, gone, is_busy = begun + _GLANCE_EVERY, begun, 0, False
        offer_at = begun
        while (code := running.poll()) is None:
            self._look_after()
            now = self._clock.monotonic()
            if now >= glance_at and not self._stopping:
                glance_at = now + _GLANCE_EVERY
                glance = self._inspector.glance()
                gone, is_busy = gone + 1 if glance.missing else 0, is_busy or glance.is_busy
                if gone >= _GONE_AFTER:
                    return self._give_up(f"{glance.missing} GPUs have not answered for a minute")
            if self._results is not None and now >= offer_at:
                offer_at = now + _SEE_EVERY
                self._results.offer(self._look_for_checkpoint())
            if now >= see_at and not self._stopping and self._training.stalled_after_minutes:
                see_at = now + _SEE_EVERY
                stillness.see(self._signs(is_busy), now)
                is_busy = False
                if stillness.is_hanging(now):
                    self._ring(names.METRIC_JOB_STALLS)
                    return self._give_up(f"no sign of life for {stillness.seconds(now) / 60:.0f} minutes")
            self._clock.sleep(_LOOK_EVERY)
        self._look_for_checkpoint()
        return faults.of_exit(code) if code else None

    def _signs(self, is_busy: bool) -> Signs:
        try:
            told = tell.tell_file(self._place.directory, 0).stat().st_mtime
        except OSError:
            told = 0.0
        return Signs(self._look_for_checkpoint(), self._output.pieces + told, is_busy)

    def _give_up(self, why: str) -> Breakdown:
        self._look_for_checkpoint()  # what it saves when it is told to stop shows no progress
        log.error("training is stopped", reason=why)
        self._end_process(_HANGING_GRACE, self._look_after)
        return Breakdown(why)

    def _end_process(self, grace: float, look_after: Callable[[], None] = lambda: None) -> None:
        """Stop the process, if there is one; what is left after ``grace`` seconds is killed."""
        if self._process is None:
            return
        self._process.stop(grace)
        while self._process.poll() is None:
            look_after()
            self._clock.sleep(_LOOK_EVERY)

    def _attend(self) -> None:
        """Go on living while something is brought here that takes long."""
        if self._stopping:
            raise UnwantedError("told to stop")
        self._look_after()

    def _look_after(self) -> None:
        self._heart.beat(
            [0],
            waiting=not self._is_ready,
            progress=lambda: self._steps.progress(self._clock.wall()),
        )
        self._keeper.keep()
        self._look_after_more()

    def _pause(self, seconds: float) -> None:
        end = self._clock.monotonic() + seconds
        while not self._stopping and self._clock.monotonic() < end:
            self._look_after()
            self._clock.sleep(_LOOK_EVERY)

    def _look_for_checkpoint(self) -> float:
        self._newest = newest_checkpoint(self.checkpoints)
        return self._newest

    def _environment(self, restarts: int) -> dict[str, str]:
        job, place = self._training, self._place
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "USER": job.user,
            "LOGNAME": job.user,
            **variables.of_job(
                job.job,
                job.environment,
                place.data,
                place.directory,
                self.checkpoints,
                place.artifacts,
                self.done_file,
            ),
            "GPU_SPOT_RESTARTS": str(restarts),
            **self._told,
        }

    def _start(self, argv: list[str], env: dict[str, str], cwd: Path) -> Process:
        pipe = self._output.pipe()
        try:
            return process.spawn(argv, self._within.user, env, cwd, pipe)
        finally:
            os.close(pipe)
