"""Supervisor of a service's workers: one process or container per slot, drained on SIGTERM."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from contracts.agent.config import Service
from contracts.agent.names import RUN_DIR, WORKERS_DIR
from contracts.registry.worker_report import WorkerReport
from userdata.agent.machine import files, log
from userdata.agent.machine.background import (
    MAX_BACKOFF_SECONDS,
    BackgroundPoller,
    BackgroundRunner,
    Guard,
    at_once,
    backoff,
)
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Host
from userdata.agent.storage import scratch
from userdata.agent.work import containers, notice, process, worker_report_file
from userdata.agent.work.container import worker_variables
from userdata.agent.work.heartbeat import HeartbeatSender
from userdata.agent.work.process import JobProcess
from userdata.agent.work.service.http_checks import HttpChecks
from userdata.agent.work.service.restarts import RestartCoordinator
from userdata.agent.work.service.slots import (
    Slot,
    container,
    container_command,
    environment,
    process_command,
    ready_file,
    variable_lines,
    with_variables,
)
from userdata.agent.work.service.worker_reports import WorkerReports, version

_CLEAR_SECONDS: Final = 120.0
"""Time limit for removing what an earlier worker of a slot left."""
_REMOVAL_SECONDS: Final = 4.0  # for containers of killed clients: less than the reserve before a deadline
_SECRETS_SECONDS: Final = 30.0
_RELEASE_SECONDS: Final = 30.0
"""Time that a failed worker waits for the release; it then starts from the one before."""
_POLL_INTERVAL_SECONDS: Final = 0.5
_STOPPING: Final = "stopping"
"""Suffix of the file that exists from a worker's SIGTERM on."""
_TERM_SECONDS: Final = 5.0
"""Time from SIGTERM to SIGKILL of an HTTP worker whose requests run until the deadline; at most a tenth of
the time that it has to drain."""
_NOT_READY_CHECK_SECONDS: Final = 60.0
"""Interval at which the release is read again for a worker that does not become ready."""


@dataclass
class _Worker:
    slot: Slot
    clearing: BackgroundPoller[bool]
    """Removes what the slot's worker before left, its container and its files."""
    process: JobProcess | None = None
    failures: int = 0
    start_at: float = 0.0
    started_at: float = 0.0
    is_cleared: bool = False
    is_restarting: bool = False
    """Whether it was stopped for a requested restart."""
    service: Service | None = None
    """The service that it was started from."""
    checked_at: float = 0.0
    """When the release was last read for it while it was not ready (monotonic seconds)."""
    drain_until: float | None = None
    """When an HTTP worker that drains gets SIGTERM at the latest (monotonic seconds); None: not draining."""
    kill_at: float = 0.0
    """When it is killed then."""
    is_signalled: bool = False
    """Whether it got SIGTERM from an earlier process of the agent."""


SpawnWorker = Callable[[list[str], Mapping[str, str]], subprocess.Popen[bytes]]
"""Starts a command with variables in addition to its user's environment."""


def _start(user: str, argv: list[str], more: Mapping[str, str]) -> subprocess.Popen[bytes]:
    home = process.home(user)
    return process.spawn(argv, user, {**process.environment(user, home), **more}, home)


def _start_client(argv: list[str], more: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the Docker client as the agent; its container has none of these variables."""
    return process.spawn(argv, "", {**os.environ, **more})


class Workers:
    """Supervises all slots; `run` returns after `stop` once every worker has ended."""

    def __init__(
        self,
        service: Service,
        worker_slots: Sequence[Slot],
        heartbeats: HeartbeatSender,
        host: Host,
        clock: Clock,
        directory: Path = RUN_DIR,
        datasets: Sequence[str] = (),
        spawn: SpawnWorker | None = None,
        secrets: Callable[[], Mapping[str, str]] = dict,
        worker_reports: WorkerReports | None = None,
        run_in_background: BackgroundRunner = at_once,
        release: Callable[[], Service] | None = None,
        http: HttpChecks | None = None,
    ) -> None:
        """Prepare the slots; no worker is started yet.

        Args:
            service: the image or command of the workers.
            worker_slots: the slots to run.
            heartbeats: sends the workers' heartbeats.
            host: the machine.
            clock: wall and monotonic time.
            directory: the agent's runtime directory.
            datasets: paths that workers may read.
            spawn: starts a plain process; None: as the service's user.
            secrets: returns variables that no command line may show. Called in the background before each
                start, so a restarted worker gets changed values. If it raises ``AgentError``, the previous
                values are used; without any, the start is postponed.
            worker_reports: builds the reports of the heartbeats.
            run_in_background: runs ``secrets``, ``release`` and Docker, which may take minutes.
            release: returns, once it is fetched, the service that restarted workers start from; they keep
                running until then.
            http: readiness and drain of workers that are HTTP servers.
        """
        self._service = service
        self._heartbeats = heartbeats
        self._host = host
        self._clock = clock
        self._directory = directory
        self._datasets = datasets
        self._spawn = spawn or (_start_client if service.image else partial(_start, service.user))
        self._secrets = BackgroundPoller(
            "secrets", lambda: dict(secrets()), run_in_background, clock, _SECRETS_SECONDS
        )
        self._guard = Guard(clock)
        self._worker_reports = worker_reports
        self._http = http
        self._restarts = RestartCoordinator(
            release or (lambda: self._service), run_in_background if release else at_once, clock
        )
        self._secret_values: Mapping[str, str] | None = None

        def clearing(slot: Slot) -> BackgroundPoller[bool]:
            clear = partial(self._clear, slot)
            return BackgroundPoller(f"worker {slot.number}", clear, run_in_background, clock, _CLEAR_SECONDS)

        self._workers = [_Worker(slot, clearing(slot)) for slot in worker_slots]
        self._stopping = False

    def stop(self) -> None:
        """Stop every worker at the next tick, so that it finishes its requests; safe in a signal handler."""
        self._stopping = True

    def adopt(self) -> None:
        """Supervise the workers of an earlier process of the agent, which was killed while they drained."""
        running = {(info.pid, info.started): info for info in self._host.processes()}
        for worker in self._workers:
            slot = worker.slot.number
            record = files.read_json(self._file(slot, "json")) or {}
            info = running.get((record.get("pid", 0), record.get("started", 0)))
            if info is None:
                continue
            adopted = process.AdoptedProcess(info, self._host)
            worker.is_signalled = self._file(slot, _STOPPING).exists()
            self._supervise(worker, JobProcess(adopted, self._host, self._clock))
            log.warning("worker adopted", slot=slot, pid=info.pid, is_signalled=worker.is_signalled)

    def run(self) -> None:
        """Supervise until `stop` was called and all workers have ended."""
        while self.tick():
            self._clock.sleep(_POLL_INTERVAL_SECONDS)
        self._heartbeats.flush()
        end = self._clock.monotonic() + _REMOVAL_SECONDS
        while self._service.image and self._clock.monotonic() < end:  # a killed client's container runs on
            if not any(w.clearing.is_running for w in self._workers if not self._is_cleared(w)):
                break
            self._clock.sleep(_POLL_INTERVAL_SECONDS)

    def tick(self) -> bool:
        """Run one pass over all workers, which waits for nothing; return whether there is more to do."""
        # The watcher's signal may have met an agent that was killed.
        self._stopping |= notice.is_drain_due(self._directory, self._clock)
        for worker in self._workers:
            self._guard.run(f"worker {worker.slot.number}", partial(self._attend, worker), postpones=False)
        absent = [w for w in self._workers if w.process is None and self._clock.monotonic() >= w.start_at]
        if absent and not self._stopping and not self._heartbeats.is_in_warm_pool():
            self._guard.run("starts", partial(self._start_all, absent), postpones=False)
        if self._worker_reports:
            self._guard.run("worker reports", self._worker_reports.poll)
        alive = [w for w in self._workers if w.process]
        ready = [w.slot.number for w in alive if not w.is_restarting and self._is_ready(w.slot)]
        report = self._report if self._worker_reports else None
        send = partial(self._heartbeats.send, ready, draining=self._stopping, worker_report=report)
        requested_restarts = self._guard.run("heartbeats", send) or frozenset()
        if not self._stopping and notice.read(self._directory) is None:
            poll = partial(self._poll_restarts, requested_restarts, alive, ready)
            self._guard.run("restarts", poll, postpones=False)
        return not self._stopping or bool(alive)

    def _report(self, slot: int) -> WorkerReport | None:
        assert self._worker_reports is not None
        build = partial(self._worker_reports.build, slot)
        return self._guard.run(f"report of worker {slot}", build, postpones=False)

    def _poll_restarts(self, requested: frozenset[int], alive: Sequence[_Worker], ready: list[int]) -> None:
        not_ready = self._find_not_ready(w for w in alive if w.slot.number not in ready)
        self._service, restart_slots = self._restarts.poll({*requested, *not_ready}, self._service)
        to_restart = [w for w in alive if w.slot.number in restart_slots]
        self._restart(w for w in to_restart if w.slot.number in ready or w.service != self._service)

    def _attend(self, worker: _Worker) -> None:
        """Reap a worker that has ended; stop it if this service stops, sooner if the notice says so now."""
        self._reap(worker)
        if self._stopping and worker.process:
            seconds = process.seconds_to_save(notice.read(self._directory), self._clock)
            self._stop_worker(worker, worker.process, seconds)
        self._end_drained(worker)

    def _stop_worker(self, worker: _Worker, running: JobProcess, seconds: float) -> None:
        """Send a worker SIGTERM, to end within ``seconds``.

        An HTTP worker gets it once its requests have ended, at the latest shortly before that time: many
        servers end at once, and a proxy needs a second to see that it drains.
        """
        if self._http is None or running.is_stop_requested or worker.is_signalled:
            self._signal(worker, running, seconds)
            return
        self._http.drain(worker.slot.number)
        now = self._clock.monotonic()
        drain_until = now + seconds - min(_TERM_SECONDS, seconds / 10)
        if worker.drain_until is None or drain_until < worker.drain_until:
            worker.kill_at, worker.drain_until = now + seconds, drain_until

    def _end_drained(self, worker: _Worker) -> None:
        """Send an HTTP worker SIGTERM that has drained, or has no more time."""
        if self._http is None or worker.drain_until is None or worker.process is None:
            return
        now = self._clock.monotonic()
        if now >= worker.drain_until or self._http.is_drained(worker.slot.number):
            self._signal(worker, worker.process, max(worker.kill_at - now, 0.0))
            worker.drain_until = None

    def _signal(self, worker: _Worker, running: JobProcess, seconds: float) -> None:
        """Send a worker SIGTERM, and note that for a later process of the agent."""
        running.stop(seconds, is_sent=worker.is_signalled)
        with contextlib.suppress(OSError):  # without the note it gets a second one
            self._file(worker.slot.number, _STOPPING).touch()

    def _file(self, slot: int, suffix: str) -> Path:
        return self._directory / WORKERS_DIR / f"{slot}.{suffix}"

    def _find_not_ready(self, workers: Iterable[_Worker]) -> set[int]:
        """Return the slots that are not ready and were not checked recently.

        Workers that are not ready send no heartbeat, and so get no restart request. By this check they leave
        a release that never becomes ready after it is rolled back.
        """
        now = self._clock.monotonic()
        to_check = [
            w
            for w in workers
            if not w.is_restarting and now - max(w.started_at, w.checked_at) >= _NOT_READY_CHECK_SECONDS
        ]
        for worker in to_check:
            worker.checked_at = now
        return {worker.slot.number for worker in to_check}

    def _restart(self, workers: Iterable[_Worker]) -> None:
        """Drain and restart workers; they are deregistered until they run again."""
        for worker in workers:
            if worker.process is None or worker.process.is_stop_requested or worker.drain_until is not None:
                continue
            log.warning("restarting worker on request", slot=worker.slot.number)
            worker.is_restarting = True
            self._heartbeats.deregister(worker.slot.number)
            self._stop_worker(worker, worker.process, process.STOP_SECONDS)

    def _start_all(self, absent: Sequence[_Worker]) -> None:
        workers = [worker for worker in absent if self._is_cleared(worker)]
        if not workers:
            return
        if failed := {w.slot.number for w in workers if w.failures}:
            # A worker that fails at start sends no heartbeat, and so gets no restart request.
            self._service, startable = self._restarts.poll(failed, self._service)
            since = self._clock.monotonic() - _RELEASE_SECONDS
            workers = [
                w for w in workers if not w.failures or w.slot.number in startable or w.start_at <= since
            ]
        try:
            secret_values = self._secrets.poll()
        except AgentError as error:
            log.error("secrets not read", reason=str(error), has_previous=self._secret_values is not None)
        else:
            if secret_values is None:
                return  # still running
            self._secret_values = secret_values
        for worker in workers:
            if self._secret_values is None:
                self._postpone(worker)
                continue
            try:
                self._start(worker, self._secret_values)
            except Exception as error:  # this worker's, whatever it is
                self._fail(worker, error)

    def _fail(self, worker: _Worker, error: Exception) -> None:
        is_foreseen = isinstance(error, AgentError)
        reason = str(error) if is_foreseen else f"{type(error).__name__}: {error}"
        log.error("worker not started", slot=worker.slot.number, reason=reason, exc_info=not is_foreseen)
        self._postpone(worker)

    def _is_cleared(self, worker: _Worker) -> bool:
        """Return whether nothing of the slot's worker before is left; its removal never delays the others."""
        try:
            worker.is_cleared = worker.is_cleared or bool(worker.clearing.poll())
        except AgentError as error:
            self._fail(worker, error)
        return worker.is_cleared

    def _postpone(self, worker: _Worker) -> float:
        """Postpone the next start; return the delay in seconds, doubled each time."""
        worker.failures += 1
        pause = backoff(worker.failures)
        worker.start_at = self._clock.monotonic() + pause
        return pause

    def _clear(self, slot: Slot) -> bool:
        """Remove what the slot's worker before left; run in the background."""
        if self._service.image:
            # A container whose client was killed keeps running, with its name and its GPU.
            containers.remove(self._host, container(slot))
            if not self._stopping:
                scratch.prepare_worker(self._host, slot.number)
        for suffix in ("cid", _STOPPING):
            self._file(slot.number, suffix).unlink(missing_ok=True)
        worker_report_file.create_worker_directory(self._directory, slot.number)
        return True

    def _start(self, worker: _Worker, secrets: Mapping[str, str]) -> None:
        slot, workers_directory = worker.slot, self._directory / WORKERS_DIR
        port = self._http.environment(slot.number) if self._http else {}
        # A server that takes its port as an argument, and whose image has no shell.
        service = replace(self._service, command=with_variables(self._service.command, port))
        if self._service.image:
            pairs = {
                **worker_variables(has_read_only_root=self._service.read_only_root),
                **self._service.environment,
                **environment(slot, self._directory),
                **port,
                **secrets,
            }
            variables = variable_lines(pairs)
            files.write_atomic(workers_directory / f"{slot.number}.env", "\n".join(variables) + "\n", 0o600)
            argv = container_command(service, slot, self._directory, self._datasets, len(self._workers))
        else:
            workers_directory.mkdir(parents=True, exist_ok=True)
            argv = process_command(service, slot, self._directory, port)
        # For a container they are in its file; the Docker client needs none.
        inherited = {} if self._service.image else secrets
        if self._stopping:  # requested since this pass began
            return
        worker.is_cleared = worker.is_signalled = False
        started = JobProcess(self._spawn(argv, inherited), self._host, self._clock)
        self._supervise(worker, started)
        record = {"slot": slot.number, "gpu": slot.gpu, "pid": started.pid}
        ticks = {info.pid: info.started for info in self._host.processes()}.get(started.pid, 0)
        files.write_json(self._file(slot.number, "json"), {**record, "started": ticks})
        log.info("worker started", **record, failures=worker.failures)

    def _supervise(self, worker: _Worker, running: JobProcess) -> None:
        worker.process, worker.started_at = running, self._clock.monotonic()
        worker.is_restarting, worker.service = False, self._service
        if self._http:
            self._http.record_start(worker.slot.number)
        if self._worker_reports:
            self._worker_reports.record_start(worker.slot.number, version(self._service))

    def _reap(self, worker: _Worker) -> None:
        if worker.process is None or (code := worker.process.poll()) is None:
            return
        worker.process = worker.drain_until = None
        if self._http:
            self._http.record_end(worker.slot.number)
        if self._clock.monotonic() - worker.started_at >= MAX_BACKOFF_SECONDS:
            worker.failures = 0
        pause = 0.0 if worker.is_restarting else self._postpone(worker)
        self._file(worker.slot.number, "json").unlink(missing_ok=True)
        if not worker.is_restarting:
            self._heartbeats.deregister(worker.slot.number)
        level = log.info if self._stopping or worker.is_restarting else log.error
        level(
            "worker ended", slot=worker.slot.number, code=code, restart_in=None if self._stopping else pause
        )

    def _is_ready(self, slot: Slot) -> bool:
        if self._http:
            return self._http.is_ready(slot.number)
        # A link may lead to a hanging file system.
        return not self._service.reports_readiness or os.path.lexists(ready_file(slot, self._directory))
