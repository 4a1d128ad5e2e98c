"""A registry that keeps what it was told."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from contracts.registry.item import Progress, WorkerState
from contracts.registry.worker_report import Pulse
from userdata.agent.aws.registry import WorkerRegistry
from userdata.agent.machine.errors import AgentError


class BeatList(WorkerRegistry):
    def __init__(self) -> None:
        self.beats: list[tuple[tuple[int, ...], float, WorkerState, float | None]] = []
        self.left: list[int] = []
        self.down = False
        self.asked = 0
        self.progress: Progress | None = None
        self.pulses: list[Mapping[int, Pulse]] = []
        self.first: list[frozenset[int]] = []
        self.wished: set[int] = set()
        """As the rows have it: gone with a row, and with the first beat of a start."""

    def beat(
        self,
        slots: Iterable[int],
        now: float,
        state: WorkerState,
        deadline: float | None,
        progress: Progress | None = None,
        pulses: Mapping[int, Pulse] | None = None,
        first: Collection[int] = (),
    ) -> frozenset[int]:
        self.asked += 1
        self.progress = progress
        if self.down:
            raise AgentError("no registry")
        self.beats.append((tuple(slots), now, state, deadline))
        self.pulses.append(pulses or {})
        self.first.append(frozenset(first))
        self.wished -= set(first)
        return frozenset(self.wished)

    def leave(self, slot: int) -> None:
        if self.down:
            raise AgentError("no registry")
        self.left.append(slot)
        self.wished.discard(slot)
