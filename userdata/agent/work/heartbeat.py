"""Heartbeats of this instance's workers.

Quiet in the warm pool, doomed after a notice, draining from its drain_at; waiting before the work begins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from contracts.registry.item import Progress, WorkerState
from contracts.registry.worker_report import Pulse
from userdata.agent.aws.imds import Metadata, is_warmed
from userdata.agent.aws.registry import WorkerRegistry
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError
from userdata.agent.work import notice


class Heart:
    """Beats for whoever is alive; a beat that fails is logged and the next one comes all the same."""

    def __init__(
        self, registry: WorkerRegistry, metadata: Metadata, clock: Clock, directory: Path, every: float
    ) -> None:
        self._registry = registry
        self._metadata = metadata
        self._clock = clock
        self._directory = directory
        self._every = every
        self._due = 0.0
        self._said: tuple[WorkerState, float | None] | None = None
        self._tried: tuple[WorkerState, float | None] | None = None
        self._failing_since: float | None = None
        self._starts: dict[int, int] = {}
        """How often the worker of a slot had started when its beat was last heard."""
        self.is_shared = False
        """Whether jobs run in a row: between two of them the instance serves its group all the same."""
        self._has_worked = False

    def quiet(self) -> bool:
        """Tell whether the instance must keep quiet; not knowing counts as yes, before the first beat."""
        try:
            return is_warmed(self._metadata.lifecycle_state())
        except AgentError as error:
            log.warning("lifecycle state unknown", error=str(error))
            return self._said is None

    def beat(
        self,
        slots: Collection[int],
        *,
        waiting: bool = False,
        draining: bool = False,
        progress: Callable[[], Progress | None] = lambda: None,
        pulse: Callable[[int], Pulse] | None = None,
    ) -> frozenset[int]:
        """Beat for ``slots`` if the period has passed, or at once if a notice or its drain_at has come.

        ``waiting``: the work has not begun, so there is nothing to drain. ``draining``: it was told to end.
        ``progress`` and ``pulse``, of each slot, are asked at each beat. Returns the slots whose workers
        somebody wishes to be started anew.
        """
        if self.is_shared:
            self._has_worked |= not waiting
            waiting = not self._has_worked
        state, deadline = self._state(waiting=waiting, draining=draining)
        if self._clock.monotonic() < self._due and (state, deadline) == self._tried:
            return frozenset()
        self._tried = state, deadline
        self._due = self._clock.monotonic() + self._every
        if not slots or self.quiet():
            return frozenset()
        told = {slot: pulse(slot) for slot in slots} if pulse else {}
        first = [slot for slot, one in told.items() if self._starts.get(slot) != one.starts]
        try:
            wished = self._registry.beat(
                slots, self._clock.wall(), state, deadline, progress(), told, frozenset(first)
            )
        except AgentError as error:
            if self._failing_since is None:
                self._failing_since = self._clock.monotonic()
                log.error("heartbeats fail; the work goes on", error=str(error))
            return frozenset()
        if self._failing_since is not None:
            seconds = round(self._clock.monotonic() - self._failing_since)
            self._failing_since = None
            log.info("heartbeats are back", seconds=seconds)
        self._said = state, deadline
        self._starts |= {slot: one.starts for slot, one in told.items()}
        return wished

    def leave(self, slot: int) -> None:
        """Say that the worker in ``slot`` has ended; nothing where another job follows."""
        if self.is_shared:
            return
        try:
            self._registry.leave(slot)
        except AgentError as error:
            if self._failing_since is not None:
                return  # it has been said
            log.warning("worker not removed; its heartbeat will grow old", slot=slot, error=str(error))

    def _state(self, *, waiting: bool, draining: bool) -> tuple[WorkerState, float | None]:
        found = notice.read(self._directory)
        deadline = found.deadline if found else None
        if waiting:
            return "waiting", deadline
        draining = draining or (found is not None and self._clock.wall() >= found.drain_at)
        return ("draining" if draining else "ready"), deadline
