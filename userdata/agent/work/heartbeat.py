"""Heartbeats of this instance's workers, written beside the loop that calls: the newest state wins.

An instance in the warm pool sends none. The state is `waiting` before the work starts, and `draining` from
the notice's ``drain_at`` on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from contracts.registry.item import Progress, WorkerState
from contracts.registry.tenant_wait import TenantWait
from contracts.registry.worker_report import WorkerReport
from userdata.agent.aws.imds import Metadata, is_warmed
from userdata.agent.aws.registry import WorkerRegistry
from userdata.agent.machine import log
from userdata.agent.machine.background import BackgroundPoller, BackgroundRunner, in_thread
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError
from userdata.agent.work import notice

_STATE_SECONDS: Final = 10.0
"""Time limit of the metadata service, and the age at which the lifecycle state is unknown."""
_WRITE_SECONDS: Final = 60.0
"""Time limit of a write with all its retries."""
_FLUSH_SECONDS: Final = 5.0


class HeartbeatSender:
    """Sends the heartbeats of live workers; a failure is logged once and retried at the next interval.

    No method but `flush` waits for AWS or the metadata service.
    """

    def __init__(
        self,
        registry: WorkerRegistry,
        metadata: Metadata,
        clock: Clock,
        directory: Path,
        interval_seconds: float,
        run_in_background: BackgroundRunner = in_thread,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._directory = directory
        self._interval_seconds = interval_seconds
        self._next_send_at = self._retry_at = 0.0
        self._last_sent: tuple[WorkerState, float | None] | None = None
        self._last_attempt: tuple[WorkerState, float | None] | None = None
        self._attempted_slots: frozenset[int] = frozenset()
        self._reported_starts: dict[int, int] = {}
        """Start count of each slot's worker in the last heartbeat that was written."""
        self.is_shared = False
        """Whether the instance runs several jobs in sequence: it counts as working between two of them."""
        self._has_worked = False
        self._lifecycle = BackgroundPoller(
            "lifecycle state",
            lambda: is_warmed(metadata.lifecycle_state()),
            run_in_background,
            clock,
            _STATE_SECONDS,
        )
        self._is_warmed: bool | None = None
        self._warmed_at = 0.0
        self._writes = BackgroundPoller("registry", self._write, run_in_background, clock, _WRITE_SECONDS)
        self._next: Callable[[], frozenset[int]] | None = None
        self._removed: set[int] = set()
        self._writing: tuple[Callable[[], frozenset[int]] | None, set[int]] = None, set()
        """What the running write has to do; removals that are done are taken out."""

    def is_in_warm_pool(self) -> bool:
        """Return whether the instance is in the warm pool; if unknown, True before the first heartbeat."""
        self._poll_lifecycle()
        return self._last_sent is None if self._is_warmed is None else self._is_warmed

    def _poll_lifecycle(self) -> None:
        warmed, now = self._lifecycle.take(), self._clock.monotonic()
        if warmed is not None:
            self._is_warmed, self._warmed_at = warmed, now
        elif self._lifecycle.error or now - self._warmed_at >= _STATE_SECONDS:
            self._is_warmed = None

    def send(
        self,
        slots: Collection[int],
        *,
        waiting: bool = False,
        draining: bool = False,
        progress: Callable[[], Progress | None] = lambda: None,
        worker_report: Callable[[int], WorkerReport | None] | None = None,
        tenant_waits: tuple[TenantWait, ...] | None = None,
    ) -> frozenset[int]:
        """Send a heartbeat if the interval has passed; at once for a new slot, state or deadline.

        Call it in every loop: it also starts the next write, and takes the result of the last one.

        Args:
            slots: the slots whose workers are alive.
            waiting: the work has not started, so there is nothing to drain.
            draining: the work was asked to stop.
            progress: returns the job's progress; called for each heartbeat.
            worker_report: returns the report of a slot's worker; called for each heartbeat.
            tenant_waits: the tenants of a shared host that do not run as listed.

        Returns:
            The slots whose workers are requested to restart, by the last write.
        """
        if self.is_shared:
            self._has_worked |= not waiting
            waiting = not self._has_worked
        state, deadline = self._state(waiting=waiting, draining=draining)
        is_changed = (state, deadline) != self._last_attempt or not self._attempted_slots.issuperset(slots)
        if slots and (self._clock.monotonic() >= self._next_send_at or is_changed):
            in_pool = self.is_in_warm_pool()
            if in_pool and self._is_warmed is None and self._lifecycle.is_running:
                return self._poll_write()  # the answer comes in a moment
            self._last_attempt, self._attempted_slots = (state, deadline), frozenset(slots)
            self._next_send_at = self._clock.monotonic() + self._interval_seconds
            if not in_pool:
                built = {slot: worker_report(slot) for slot in slots} if worker_report else {}
                reports = {slot: report for slot, report in built.items() if report is not None}
                details = slots, self._clock.wall(), state, deadline, progress(), reports
                self._next = partial(self._record, *details, tenant_waits)
                self._retry_at = 0.0
        return self._poll_write()

    def deregister(self, slot: int) -> None:
        """Remove the worker in ``slot`` from the registry, soon; no-op if another job follows."""
        if self.is_shared:
            return
        self._removed.add(slot)
        self._attempted_slots -= {slot}
        self._poll_write()

    def flush(self, seconds: float = _FLUSH_SECONDS) -> None:
        """Wait until workers are removed from the registry, at most ``seconds``: the process ends."""
        self._next, self._retry_at = None, 0.0
        end = self._clock.monotonic() + seconds
        while self._writes.is_running or self._removed:
            self._poll_write()
            is_failing = not self._writes.is_running and self._clock.monotonic() < self._retry_at
            if self._removed and (is_failing or self._clock.monotonic() >= end):
                log.warning(
                    "worker not deregistered; its heartbeat becomes stale", slots=sorted(self._removed)
                )
                return
            if self._clock.monotonic() >= end:
                return
            if self._writes.is_running:
                self._clock.sleep(0.1)

    def _poll_write(self) -> frozenset[int]:
        """Start a write if there is something to write; return the restart requests of a finished one."""
        if not self._writes.is_running:
            if (self._next is None and not self._removed) or self._clock.monotonic() < self._retry_at:
                return frozenset()
            self._writing = self._next, self._removed
            self._next, self._removed = None, set()
        requested_restarts = self._writes.take()
        if requested_restarts is None and not self._writes.is_running:
            self._removed |= self._writing[1]
            self._retry_at = self._clock.monotonic() + self._interval_seconds
        return requested_restarts or frozenset()

    def _write(self) -> frozenset[int]:
        """Remove workers, then write the heartbeat; a removal that fails does not keep it back."""
        heartbeat, removed = self._writing
        failure: AgentError | None = None
        for slot in sorted(removed):
            try:
                self._registry.deregister(slot)
            except AgentError as error:
                failure = error
            else:
                removed.discard(slot)
        requested_restarts = heartbeat() if heartbeat else frozenset()
        if failure is not None:
            raise failure
        return requested_restarts

    def _record(
        self,
        slots: Collection[int],
        wall: float,
        state: WorkerState,
        deadline: float | None,
        progress: Progress | None,
        reports: Mapping[int, WorkerReport],
        tenant_waits: tuple[TenantWait, ...] | None,
    ) -> frozenset[int]:
        # A worker that was removed since then is not brought back.
        slots = [slot for slot in slots if slot in self._attempted_slots]
        starts = {slot: report.starts for slot, report in reports.items() if slot in slots}
        restarted = frozenset(
            slot for slot, count in starts.items() if self._reported_starts.get(slot) != count
        )
        details = slots, wall, state, deadline, progress, reports, restarted, tenant_waits
        requested_restarts = self._registry.record_heartbeat(*details) if slots else frozenset()
        self._last_sent = state, deadline
        self._reported_starts |= starts
        return requested_restarts

    def _state(self, *, waiting: bool, draining: bool) -> tuple[WorkerState, float | None]:
        current = notice.read(self._directory)
        deadline = current.deadline if current else None
        if waiting:
            return "waiting", deadline
        draining = draining or (current is not None and current.is_drain_due(self._clock))
        return ("draining" if draining else "ready"), deadline
