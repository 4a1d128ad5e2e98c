"""A worker registry that records its calls."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from contracts.registry.item import Progress, WorkerState
from contracts.registry.tenant_wait import TenantWait
from contracts.registry.worker_report import WorkerReport
from userdata.agent.aws.registry import WorkerRegistry
from userdata.agent.machine.errors import AgentError


class RecordingRegistry(WorkerRegistry):
    def __init__(self) -> None:
        self.heartbeats: list[tuple[tuple[int, ...], float, WorkerState, float | None]] = []
        self.left: list[int] = []
        self.down = False
        self.asked = 0
        self.progress: Progress | None = None
        self.worker_reports: list[Mapping[int, WorkerReport]] = []
        self.first: list[frozenset[int]] = []
        self.restarts_requested: set[int] = set()
        """As the rows have it: gone with a row, and with the first beat of a start."""

    def record_heartbeat(
        self,
        slots: Iterable[int],
        now: float,
        state: WorkerState,
        deadline: float | None,
        progress: Progress | None = None,
        worker_reports: Mapping[int, WorkerReport] | None = None,
        first: Collection[int] = (),
        tenant_waits: tuple[TenantWait, ...] | None = None,
    ) -> frozenset[int]:
        self.asked += 1
        self.progress = progress
        if self.down:
            raise AgentError("no registry")
        self.heartbeats.append((tuple(slots), now, state, deadline))
        self.worker_reports.append(worker_reports or {})
        self.first.append(frozenset(first))
        self.restarts_requested -= set(first)
        return frozenset(self.restarts_requested)

    def deregister(self, slot: int) -> None:
        if self.down:
            raise AgentError("no registry")
        self.left.append(slot)
        self.restarts_requested.discard(slot)
