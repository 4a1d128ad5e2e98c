"""A host whose units are entries of a dict and whose signals are a list."""

from __future__ import annotations

import signal

from userdata.agent.host import SystemHost


class UnitHost(SystemHost):
    def __init__(self) -> None:
        super().__init__()
        self.pids: dict[str, int] = {}
        self.signals: list[tuple[int, signal.Signals]] = []

    def main_pid(self, unit: str) -> int | None:
        return self.pids.get(unit)

    def signal(self, pid: int, number: signal.Signals) -> None:
        self.signals.append((pid, number))
