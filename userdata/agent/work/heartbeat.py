"""Heartbeats of this instance's workers.

An instance in the warm pool sends none. The state is `waiting` before the work starts, and `draining` from
the notice's ``drain_at`` on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from contracts.registry.item import Progress, WorkerState
from contracts.registry.tenant_wait import TenantWait
from contracts.registry.worker_report import WorkerReport
from userdata.agent.aws.imds import Metadata, is_warmed
from userdata.agent.aws.registry import WorkerRegistry
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError
from userdata.agent.work import notice


class HeartbeatSender:
    """Sends the heartbeats of live workers; a failure is logged once and retried at the next interval."""

    def __init__(
        self,
        registry: WorkerRegistry,
        metadata: Metadata,
        clock: Clock,
        directory: Path,
        interval_seconds: float,
    ) -> None:
        self._registry = registry
        self._metadata = metadata
        self._clock = clock
        self._directory = directory
        self._interval_seconds = interval_seconds
        self._next_send_at = 0.0
        self._last_sent: tuple[WorkerState, float | None] | None = None
        self._last_attempt: tuple[WorkerState, float | None] | None = None
        self._failing_since: float | None = None
        self._reported_starts: dict[int, int] = {}
        """Start count of each slot's worker in the last heartbeat that was written."""
        self.is_shared = False
        """Whether the instance runs several jobs in sequence: it counts as working between two of them."""
        self._has_worked = False

    def is_in_warm_pool(self) -> bool:
        """Return whether the instance is in the warm pool; if unknown, True before the first heartbeat."""
        try:
            return is_warmed(self._metadata.lifecycle_state())
        except AgentError as error:
            log.warning("lifecycle state unknown", error=str(error))
            return self._last_sent is None

    def send(
        self,
        slots: Collection[int],
        *,
        waiting: bool = False,
        draining: bool = False,
        progress: Callable[[], Progress | None] = lambda: None,
        worker_report: Callable[[int], WorkerReport] | None = None,
        tenant_waits: tuple[TenantWait, ...] | None = None,
    ) -> frozenset[int]:
        """Send a heartbeat if the interval has passed, or at once if the state or the deadline changed.

        Args:
            slots: the slots whose workers are alive.
            waiting: the work has not started, so there is nothing to drain.
            draining: the work was asked to stop.
            progress: returns the job's progress; called for each heartbeat.
            worker_report: returns the report of a slot's worker; called for each heartbeat.
            tenant_waits: the tenants of a shared host that do not run as listed.

        Returns:
            The slots whose workers are requested to restart.
        """
        if self.is_shared:
            self._has_worked |= not waiting
            waiting = not self._has_worked
        state, deadline = self._state(waiting=waiting, draining=draining)
        if self._clock.monotonic() < self._next_send_at and (state, deadline) == self._last_attempt:
            return frozenset()
        self._last_attempt = state, deadline
        self._next_send_at = self._clock.monotonic() + self._interval_seconds
        if not slots or self.is_in_warm_pool():
            return frozenset()
        reports = {slot: worker_report(slot) for slot in slots} if worker_report else {}
        restarted = [
            slot for slot, report in reports.items() if self._reported_starts.get(slot) != report.starts
        ]
        try:
            requested_restarts = self._registry.record_heartbeat(
                slots,
                self._clock.wall(),
                state,
                deadline,
                progress(),
                reports,
                frozenset(restarted),
                tenant_waits,
            )
        except AgentError as error:
            if self._failing_since is None:
                self._failing_since = self._clock.monotonic()
                log.error("heartbeats fail", error=str(error))
            return frozenset()
        if self._failing_since is not None:
            seconds = round(self._clock.monotonic() - self._failing_since)
            self._failing_since = None
            log.info("heartbeats recovered", seconds=seconds)
        self._last_sent = state, deadline
        self._reported_starts |= {slot: report.starts for slot, report in reports.items()}
        return requested_restarts

    def deregister(self, slot: int) -> None:
        """Remove the worker in ``slot`` from the registry; no-op if another job follows."""
        if self.is_shared:
            return
        try:
            self._registry.deregister(slot)
        except AgentError as error:
            if self._failing_since is not None:
                return  # already logged
            log.warning("worker not deregistered; its heartbeat becomes stale", slot=slot, error=str(error))

    def _state(self, *, waiting: bool, draining: bool) -> tuple[WorkerState, float | None]:
        current = notice.read(self._directory)
        deadline = current.deadline if current else None
        if waiting:
            return "waiting", deadline
        draining = draining or (current is not None and self._clock.wall() >= current.drain_at)
        return ("draining" if draining else "ready"), deadline
