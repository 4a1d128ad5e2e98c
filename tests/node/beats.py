"""A registry that keeps what it was told."""

from __future__ import annotations

from collections.abc import Iterable

from userdata.agent.aws.registry import Registry, State
from userdata.agent.machine.errors import AgentError


class BeatList(Registry):
    def __init__(self) -> None:
        self.beats: list[tuple[tuple[int, ...], float, State, float | None]] = []
        self.left: list[int] = []
        self.down = False
        self.asked = 0

    def beat(self, slots: Iterable[int], now: float, state: State, deadline: float | None) -> None:
        self.asked += 1
        if self.down:
            raise AgentError("no registry")
        self.beats.append((tuple(slots), now, state, deadline))

    def leave(self, slot: int) -> None:
        self.left.append(slot)
