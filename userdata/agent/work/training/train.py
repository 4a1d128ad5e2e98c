"""Supervisor of a training job: starts its command, restarts it on failure, stops it before a deadline."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from contracts import names
from contracts.agent.config import Training
from contracts.agent.names import JOB_HOME
from userdata.agent.aws.jobs import Jobs
from userdata.agent.lease.renewal import LeaseRenewer
from userdata.agent.machine import log
from userdata.agent.machine.background import BackgroundPoller, BackgroundRunner, Guard, at_once
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError, HostError, LeaseLostError, WorkCancelledError
from userdata.agent.machine.host import Host
from userdata.agent.work import notice, process, worker_report_file
from userdata.agent.work.failures import faults
from userdata.agent.work.failures.fault_handler import FaultHandler, RunEnd
from userdata.agent.work.failures.faults import FailedRun
from userdata.agent.work.failures.inspection import Inspector
from userdata.agent.work.failures.stall import ActivitySample, StallDetector
from userdata.agent.work.heartbeat import HeartbeatSender
from userdata.agent.work.process import JobProcess, Process, Spawn
from userdata.agent.work.training import completion, variables
from userdata.agent.work.training.artifacts import Artifacts
from userdata.agent.work.training.checkpoint_files import CheckpointFiles
from userdata.agent.work.training.environment import HostEnvironment, JobEnvironment
from userdata.agent.work.training.output import Output
from userdata.agent.work.training.progress import ProgressReader
from userdata.agent.work.training.record import Recorder
from userdata.agent.work.training.variables import local_checkpoints

_POLL_INTERVAL_SECONDS: Final = 0.2
"""Longest time from the agent's SIGTERM to that of the command."""
_GPU_CHECK_INTERVAL_SECONDS: Final = 10.0
"""Seconds between two GPU checks; the driver's utilization sample covers only some seconds."""
_ACTIVITY_INTERVAL_SECONDS: Final = 60.0
_SCAN_SECONDS: Final = 60.0
"""Time limit for reading the checkpoints' directories."""
_DONE_SECONDS: Final = 10.0
_SECRETS_SECONDS: Final = 60.0
_MAX_MISSING_GPU_CHECKS: Final = 6
"""GPU checks in a row with a missing GPU that end a run: a process that waits for that GPU hangs."""
_MAX_DELIVERY_SECONDS_DONE: Final = 3600.0
"""Time to upload the results of a job that is done; its GPUs cost money meanwhile."""
_MAX_DELIVERY_SECONDS: Final = 300.0
"""Time to upload artifacts after any other end; a notice leaves less."""
_STALL_GRACE_SECONDS: Final = 120.0
"""Time to save before a stalled job is killed, as long as a Spot notice leaves."""


@dataclass(frozen=True)
class TrainingPaths:
    """Directories of a job.

    ``directory`` is the agent's runtime directory; the newest file in ``progress`` is the job's progress.
    """

    code: Path
    data: Path
    directory: Path
    artifacts: Path
    progress: Path


class Trainer:
    """Supervises one training job; `run` returns when it ends, or the instance terminates or is faulty.

    Args:
        prepare: installs code and environment; its errors are handled like a failure of the command.
        increment_metric: increments one of ``names.JOB_METRICS``.
        spawn: starts the command; None: as the job's user.
        environment: where the command runs; None: in the machine image.
        on_poll: called in every loop; it must not block.
        results: uploads artifacts to S3; None: they stay on the volume.
        recorder: records the attempt; None: it is not recorded.
        variables: further environment variables of the command.
        secrets: returns secret variables of the command; called in the background before each start.
        run_in_background: reads the checkpoints' directories, whose file system may hang.
    """

    def __init__(
        self,
        training: Training,
        paths: TrainingPaths,
        job: Jobs,
        heartbeats: HeartbeatSender,
        host: Host,
        clock: Clock,
        lease_renewer: LeaseRenewer,
        inspector: Inspector,
        prepare: Callable[[], None],
        increment_metric: Callable[[str], None],
        spawn: Spawn | None = None,
        output: Output | None = None,
        environment: JobEnvironment | None = None,
        on_poll: Callable[[], None] = lambda: None,
        results: Artifacts | None = None,
        recorder: Recorder | None = None,
        variables: Mapping[str, str] | None = None,
        secrets: Callable[[], Mapping[str, str]] = dict,
        run_in_background: BackgroundRunner = at_once,
    ) -> None:
        self._on_poll = on_poll
        self._training = training
        self._paths = paths
        self._job = job
        self._heartbeats = heartbeats
        self._host = host
        self._clock = clock
        self._lease_renewer = lease_renewer
        self._inspector = inspector
        self._prepare_job = prepare
        self._increment_metric = increment_metric
        self._spawn = spawn or self._start
        self._output = output or Output()
        self._job_environment = environment or HostEnvironment(training.user)
        self._results = results
        self._recorder = recorder
        self._extra_variables = {} if variables is None else variables
        self._kill_at = math.inf
        self._process: JobProcess | None = None
        self._stopping = False
        self._is_ready = False
        self._fault_handler = FaultHandler(
            training, job, inspector, increment_metric, clock, self._keep_alive
        )
        self._retries = 0
        self._progress = ProgressReader(paths.directory)
        self._checkpoint_files = CheckpointFiles(paths.progress, local_checkpoints())
        self._scan = BackgroundPoller(
            "checkpoints", self._checkpoint_files.scan, run_in_background, clock, _SCAN_SECONDS
        )
        self._done_query = BackgroundPoller(
            "done file", lambda: self.done_file.exists(), run_in_background, clock, _DONE_SECONDS
        )
        self._secrets = BackgroundPoller(
            "secrets", lambda: dict(secrets()), run_in_background, clock, _SECRETS_SECONDS
        )
        self._guard = Guard(clock)
        self._has_reported = False
        self._reported_step: int | None = None
        """The highest step that a failed run has reported; None before one has."""

    @property
    def checkpoints(self) -> Path:
        """Directory of the job's checkpoints."""
        return self._paths.data / "checkpoints" / self._training.folder

    @property
    def done_file(self) -> Path:
        """File with which the command reports that the job is done."""
        return variables.done_file(self.checkpoints, self._training.revision, self._retries)

    def stop(self) -> None:
        """Stop the command in a moment; no restart follows. Safe in a signal handler."""
        self._stopping = True

    def _follow_stop(self) -> None:
        """Send SIGTERM once after `stop`, and SIGKILL shortly before the deadline of the current notice."""
        if not self._stopping:
            return
        seconds = process.seconds_to_save(notice.read(self._paths.directory), self._clock)
        self._kill_at = min(self._kill_at, self._clock.monotonic() + seconds)
        if self._process is not None:
            self._process.stop(self._kill_at - self._clock.monotonic())
            self._process.poll()

    def run(self) -> RunEnd:
        """Run the job until its outcome is known.

        Raises:
            LeaseLostError: another instance has the lease; the training is stopped.
        """
        try:
            outcome = self._run()
            if outcome != "done":
                self._deliver(_MAX_DELIVERY_SECONDS)
        except LeaseLostError:
            log.error("lease lost: stopping training")
            self._stopping = True
            self._end_process(self._lease_renewer.grace_seconds)
            self._deregister()
            raise
        self._deregister()
        return outcome

    def _deregister(self) -> None:
        self._heartbeats.deregister(0)
        self._heartbeats.flush()

    def _run(self) -> RunEnd:
        self._job.mark("running")
        self._retries = self._job.retries()
        while not self._stopping:
            before = self._scan_checkpoints()
            try:
                failure = self._prepare()
            except WorkCancelledError:
                break
            has_started = failure is None
            if has_started:
                try:
                    failure = self._run_once()
                except HostError as error:
                    return self._fault_handler.report(str(error), self._checkpoint_files.newest)
                if self._is_done() or (failure is None and not self._stopping):
                    return self._done() if self._is_last() else self._fault_handler.end_node()
            if failure is None or self._stopping:
                break
            outcome = self._fault_handler.handle(
                failure,
                self._checkpoint_files.newest,
                has_progressed=self._has_gained_step() and self._checkpoint_files.changes > before,
                has_started=has_started,
            )
            if isinstance(outcome, str):
                return outcome
            self._pause(outcome)
        return "stopped"

    def _has_gained_step(self) -> bool:
        """Return whether the run that failed went further than those before; true if it reports no steps."""
        report = worker_report_file.read_job(self._paths.directory)
        if report is None or not report.has_step:
            return True
        before, self._reported_step = self._reported_step, max(report.step, self._reported_step or 0)
        return before is None or report.step > before

    def _is_last(self) -> bool:
        """Return whether the end of this command is that of the job.

        Of several nodes the one with rank 0 exports the model, maybe long after the others have ended.
        """
        report = worker_report_file.read_job(self._paths.directory)
        return self._training.nodes is None or self._is_done() or report is None or not report.rank

    def _is_done(self) -> bool:
        """Return whether the command has reported that the job is done; false if the file system hangs."""
        try:
            if self._done_query.is_running:  # its answer may be of an earlier run
                self._done_query.wait()
            return self._done_query.wait()
        except AgentError as error:
            log.error("not known whether the job is done", error=str(error))
            return False

    def _done(self) -> RunEnd:
        """End a job whose command is done: it is marked done after its results are uploaded."""
        missing = self._deliver(_MAX_DELIVERY_SECONDS_DONE)
        if missing and self._stopping:
            return "stopped"  # the next instance uploads them from the volume
        return self._fault_handler.end("failed", missing) if missing else self._fault_handler.end("done")

    def _deliver(self, seconds: float) -> str:
        if self._results is None:
            return ""
        end = self._clock.monotonic() + seconds
        return self._results.deliver(lambda: min(end, self._kill_at), self._keep_alive)

    def _prepare(self) -> FailedRun | None:
        """Install the job's code and environment, once."""
        if self._is_ready:
            return None
        try:
            with self._host.polling(self._poll_while_preparing):
                self._prepare_job()
            self._poll_while_preparing()  # do not start after a lost lease or a stop
        except (LeaseLostError, WorkCancelledError):
            raise
        except Exception as error:  # the job's, unless the host or a server is at fault
            log.error("not prepared", exc_info=not isinstance(error, AgentError), error=str(error))
            return faults.of_error(error)
        self._is_ready = True
        return None

    def _run_once(self) -> FailedRun | None:
        command, restarts = list(self._training.command), self._fault_handler.failures
        log.info("starting training", command=command, restarts=restarts)
        try:
            worker_report_file.create_worker_directory(self._paths.directory, 0)
            self._progress.restart()
            try:
                secrets = self._secrets.wait(self._poll_while_preparing)
            except (LeaseLostError, WorkCancelledError):
                raise
            except AgentError as error:
                return faults.of_error(error)
            with self._host.polling(self._poll_while_preparing):
                start = self._job_environment.start(
                    completion.with_pipefail(command),
                    {**self._environment(restarts), **secrets},
                    self._paths.code,
                )
            if self._stopping:
                return None
            started = self._spawn(start.argv, start.environment, self._paths.code)
        except (LeaseLostError, WorkCancelledError):
            if self._stopping:
                return None
            raise
        except Exception as error:  # the job's
            return FailedRun(f"{command[0]}: cannot be started: {error}")
        user = process.user_id(self._training.user)
        self._process = JobProcess(started, self._host, self._clock, user)
        if self._recorder is not None:
            self._recorder.record_start()
        failure = self._watch(self._process)
        if self._recorder is not None:
            self._recorder.record_stop()
        self._output.flush()
        return failure

    def _watch(self, running: JobProcess) -> FailedRun | None:
        """Wait for the process; return its failure, None after exit code 0. A stalled process is stopped."""
        started_at = self._clock.monotonic()
        stall = StallDetector(60.0 * self._training.stalled_after_minutes, started_at)
        next_gpu_check_at = started_at + _GPU_CHECK_INTERVAL_SECONDS
        next_activity_at = started_at
        missing_checks, is_busy = 0, False
        while (code := self._poll(running)) is None:
            self._keep_alive()
            now = self._clock.monotonic()
            is_due = now >= next_gpu_check_at and not self._stopping
            if is_due and (gpu_status := self._inspector.check_gpus()) is not None:
                next_gpu_check_at = now + _GPU_CHECK_INTERVAL_SECONDS
                missing_checks = missing_checks + 1 if gpu_status.missing else 0
                is_busy = is_busy or gpu_status.is_busy
                if missing_checks >= _MAX_MISSING_GPU_CHECKS:
                    return self._give_up(f"{gpu_status.missing} GPUs have not responded for a minute")
            if now >= next_activity_at and (self._scan.take() is not None or self._scan.error):
                next_activity_at = now + _ACTIVITY_INTERVAL_SECONDS
                changes = self._checkpoint_files.changes
                if self._results is not None:
                    self._guard.run("artifacts", partial(self._results.offer, changes))
                stall.update(self._sample_activity(changes, is_busy), now)
                is_busy = False
                if stall.is_stalled(now) and not self._stopping:
                    self._increment_metric(names.METRIC_JOB_STALLS)
                    return self._give_up(f"no activity for {stall.stalled_seconds(now) / 60:.0f} minutes")
            self._clock.sleep(_POLL_INTERVAL_SECONDS)
        self._scan_checkpoints()
        return faults.of_exit(code) if code else self._find_contradiction()

    def _find_contradiction(self) -> FailedRun | None:
        """Return a failure if the command's own report contradicts its exit code 0."""
        report = worker_report_file.read_job(self._paths.directory)
        reason = completion.find_contradiction(
            self._training.command,
            report,
            has_reported=self._has_reported,
            needs_report=self._training.nodes is not None,
        )
        self._has_reported = self._has_reported or report is not None
        return FailedRun(reason) if reason and not self._stopping else None

    def _scan_checkpoints(self) -> int:
        """Return the count of new checkpoints, the last one if the file system hangs."""
        while self._scan.take() is None and not self._stopping and not self._scan.error:
            self._clock.sleep(_POLL_INTERVAL_SECONDS)
        return self._checkpoint_files.changes

    def _sample_activity(self, changes: int, is_busy: bool) -> ActivitySample:
        try:
            reported_at = worker_report_file.report_path(self._paths.directory, 0).lstat().st_mtime
        except OSError:
            reported_at = 0.0
        return ActivitySample(changes, self._output.pieces + reported_at, is_busy)

    def _give_up(self, reason: str) -> FailedRun:
        self._scan_checkpoints()  # a checkpoint saved on SIGTERM is not progress
        log.error("stopping training", reason=reason)
        self._end_process(_STALL_GRACE_SECONDS, self._keep_alive)
        return FailedRun(reason)

    def _poll(self, running: JobProcess) -> int | None:
        """Return the exit code once all is over; `HostError` if SIGKILL does not end it, but for a stop."""
        code = running.poll()
        if code is None and running.ignores_kill and not self._stopping:
            raise HostError("processes of the job run on, a minute after SIGKILL")
        return code

    def _end_process(self, grace: float, on_poll: Callable[[], None] = lambda: None) -> None:
        """Stop the process, if any; kill it after ``grace`` seconds."""
        if self._process is None:
            return
        self._process.stop(grace)
        while self._poll(self._process) is None:
            on_poll()
            self._clock.sleep(_POLL_INTERVAL_SECONDS)

    def _poll_while_preparing(self) -> None:
        """Keep the lease and the heartbeats alive during preparation; raise if the job is stopped."""
        if self._stopping:
            raise WorkCancelledError("stop requested")
        self._keep_alive()

    def _keep_alive(self) -> None:
        """Do what is due beside the command; nothing here waits."""
        self._follow_stop()
        progress = partial(self._progress.read, self._clock.wall())
        send = partial(self._heartbeats.send, [0], waiting=not self._is_ready, progress=progress)
        self._guard.run("heartbeats", send)
        self._lease_renewer.renew_if_due()
        self._guard.run("other tasks", self._on_poll)

    def _pause(self, seconds: float) -> None:
        end = self._clock.monotonic() + seconds
        while not self._stopping and self._clock.monotonic() < end:
            self._keep_alive()
            self._clock.sleep(_POLL_INTERVAL_SECONDS)

    def _environment(self, restarts: int) -> dict[str, str]:
        job, paths = self._training, self._paths
        return {
            **process.environment(job.user, JOB_HOME),
            **variables.fixed_variables(
                job.job,
                job.command,
                job.environment,
                paths.data,
                paths.directory,
                self.checkpoints,
                paths.artifacts,
                self.done_file,
            ),
            **variables.local_variables(self._host),
            "GPU_SPOT_RESTARTS": str(restarts),
            **self._extra_variables,
        }

    def _start(self, argv: list[str], env: dict[str, str], cwd: Path) -> Process:
        pipe = self._output.pipe()
        try:
            return process.spawn(argv, self._job_environment.user, env, cwd, pipe)
        finally:
            os.close(pipe)
