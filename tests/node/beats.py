"""A registry that keeps what it was told."""

from __future__ import annotations

from collections.abc import Iterable

from lambdas.core.registry_item import Progress, WorkerState
from userdata.agent.aws.registry import WorkerRegistry
from userdata.agent.machine.errors import AgentError


class BeatList(WorkerRegistry):
    def __init__(self) -> None:
        self.beats: list[tuple[tuple[int, ...], float, WorkerState, float | None]] = []
        self.left: list[int] = []
        self.down = False
        self.asked = 0
        self.progress: Progress | None = None

    def beat(
        self,
        slots: Iterable[int],
        now: float,
        state: WorkerState,
        deadline: float | None,
        progress: Progress | None = None,
    ) -> None:
        self.asked += 1
        self.progress = progress
        if self.down:
            raise AgentError("no registry")
        self.beats.append((tuple(slots), now, state, deadline))

    def leave(self, slot: int) -> None:
        self.left.append(slot)
