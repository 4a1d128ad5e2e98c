"""What is told of a service's workers with their heartbeats: what they say, and what their GPUs show."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts.agent.config import Service
from contracts.group.release import WorkerRelease
from contracts.registry.worker_report import Pulse
from userdata.agent.machine import log
from userdata.agent.machine.background import Beside
from userdata.agent.machine.clock import Clock
from userdata.agent.metrics.gpus import Look
from userdata.agent.work import worker_report_file as tell
from userdata.agent.work.failures.faults import FATAL_XIDS

LOOK_EVERY: Final = 10.0
"""Seconds between two looks at the GPUs."""
BUSY_SECONDS: Final = 60.0
"""Over so much time a GPU's share is a mean."""
RATE_SECONDS: Final = 300.0
"""Over so much time requests are counted, or between two tellings, if these are further apart."""
_LEAST_SECONDS: Final = 10.0
"""What was told over less time is no rate."""
_NOTHING: Final = tell.Ended(0, 0, None, 0.0)
_AHEAD_SECONDS: Final = 60.0
"""A file may be so much newer than the clock, which somebody may have set; more is nonsense."""


def version(service: Service) -> str:
    """Return what the workers of a service run, as their release calls it."""
    return WorkerRelease(service.image or "", service.command, service.environment).version


class RequestRate:
    """Requests a second, and the share of the time in which there were any, from what was told when; pure."""

    def __init__(self) -> None:
        self._told: deque[tuple[float, int, float | None]] = deque(maxlen=64)

    def see(self, done: int, at: float, busy: float | None = None) -> tuple[float, float | None]:
        """Return rate and share once ``done`` requests had ended at ``at``, in ``busy`` seconds of work.

        0 while too little is known; a share of None where nobody tells.
        """
        if self._told:
            last, before, worked = self._told[-1]
            if done < before or at < last or (busy or 0.0) < (worked or 0.0):
                self._told.clear()  # another process counts, or another clock
        if not self._told or at > self._told[-1][0]:
            self._told.append((at, done, busy))
        while len(self._told) > 2 and at - self._told[1][0] >= RATE_SECONDS:
            self._told.popleft()
        (first, start, idle), (last, end, worked) = self._told[0], self._told[-1]
        if last - first < _LEAST_SECONDS:
            return 0.0, None
        share = None if idle is None or worked is None else min(1.0, (worked - idle) / (last - first))
        return (end - start) / (last - first), share


@dataclass(eq=False)
class Pulses:
    """Gathers what is told of the workers in ``directory``.

    Args:
        gpus: the index of each slot's GPU, in PCI order.
        looks: at the GPUs, which may hang with their driver; None where nobody can look.
    """

    gpus: Mapping[int, int]
    looks: Beside[Look] | None
    clock: Clock
    directory: Path

    def __post_init__(self) -> None:
        self._versions: dict[int, str] = {}
        self._look_at = 0.0
        self._uuids: dict[int, str] = {}
        self._busy: dict[int, deque[tuple[float, float]]] = {}
        self._xids: dict[str, int] = {}
        self._starts: dict[int, int] = {}
        self._rates: dict[int, RequestRate] = {}
        self._complained: set[int] = set()

    def started(self, slot: int, version: str) -> None:
        """Count a start of the worker in ``slot`` from ``version``; it tells anew from now on."""
        self._versions[slot] = version
        self._starts[slot] = self._starts.get(slot, 0) + 1
        self._rates[slot] = RequestRate()
        self._complained.discard(slot)

    def look(self) -> None:
        """Look at the GPUs now and then; to be called often."""
        if self.looks is None or self.clock.monotonic() < self._look_at:
            return
        look = self.looks.poll()
        if look is None:
            return
        now = self.clock.monotonic()
        self._look_at = now + LOOK_EVERY
        for gpu in look.gpus:
            self._uuids[gpu.index] = gpu.uuid
            if gpu.busy is not None:
                self._busy.setdefault(gpu.index, deque(maxlen=32)).append((now, min(gpu.busy, 100.0)))
        for uuid, code in look.xids:
            if code in FATAL_XIDS:
                self._xids[uuid] = code

    def of(self, slot: int) -> Pulse:
        """Return what is told of the worker in ``slot`` now."""
        uuid = self._uuids.get(self.gpus[slot], "")
        ended = self._requests(slot)
        rates = self._rates.setdefault(slot, RequestRate())
        rate, busy = rates.see(ended.done, ended.at, ended.busy) if ended.at else (0.0, None)
        return Pulse(
            version=self._versions.get(slot, ""),
            gpu=uuid,
            at=ended.at,
            done=ended.done,
            failed=ended.failed,
            rate=round(rate, 3),
            busy=None if busy is None else round(busy, 4),
            gpu_use=self._use(self.gpus[slot]),
            xid=self._xids.get(uuid, 0),
            starts=self._starts.get(slot, 0),
        )

    def _requests(self, slot: int) -> tell.Ended:
        """Return what is told of requests; zeros for nonsense."""
        path, now = tell.tell_file(self.directory, slot), self.clock.wall()
        try:
            told = tell.requests(path)
            if told is not None and told.at > now + _AHEAD_SECONDS:
                raise ValueError(f"written {told.at - now:.0f} s from now, allowed: before now")
        except (OSError, ValueError) as error:
            if slot not in self._complained:
                self._complained.add(slot)
                log.warning("what a worker has done cannot be read", path=str(path), error=str(error))
            return _NOTHING
        return _NOTHING if told is None else told._replace(at=min(told.at, now))

    def _use(self, index: int) -> float | None:
        since = self.clock.monotonic() - BUSY_SECONDS
        lately = [busy for at, busy in self._busy.get(index, ()) if at >= since]
        return round(sum(lately) / len(lately), 1) if lately else None
