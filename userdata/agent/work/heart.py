"""Heartbeats of this instance's workers.

Quiet in the warm pool, doomed after a notice, draining from its drain_at; waiting before the work begins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from lambdas.core.registry_item import Progress, WorkerState
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
        self._failing = False

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
        progress: Callable[[], Progress | None] = lambda: None,
    ) -> None:
        """Beat for ``slots`` if the period has passed, or at once if a notice or its drain_at has come.

        ``waiting``: the work has not begun, so there is nothing to drain. ``progress`` is asked at each beat.
        """
        state, deadline = self._state(waiting)
        if self._clock.monotonic() < self._due and (state, deadline) == self._tried:
            return
        self._tried = state, deadline
        self._due = self._clock.monotonic() + self._every
        if not slots or self.quiet():
            return
        try:
            self._registry.beat(slots, self._clock.wall(), state, deadline, progress())
        except AgentError as error:
            if not self._failing:
                log.error("heartbeat failed", error=str(error))
            self._failing = True
            return
        if self._failing:
            log.info("heartbeats are back")
        self._failing = False
        self._said = state, deadline

    def leave(self, slot: int) -> None:
        """Say that the worker in ``slot`` has ended."""
        try:
            self._registry.leave(slot)
        except AgentError as error:
            log.warning("worker not removed; its heartbeat will grow old", slot=slot, error=str(error))

    def _state(self, waiting: bool) -> tuple[WorkerState, float | None]:
        found = notice.read(self._directory)
        deadline = found.deadline if found else None
        if waiting:
            return "waiting", deadline
        return ("draining" if found and self._clock.wall() >= found.drain_at else "ready"), deadline
