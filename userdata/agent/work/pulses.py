"""What is told of a service's workers with their heartbeats: what they say, and what their GPUs show."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lambdas.core.pulse import Pulse
from userdata.agent.config.model import Service
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.metrics.gpus import Look
from userdata.agent.work import tell
from userdata.agent.work.beside import Beside
from userdata.agent.work.faults import FATAL_XIDS

LOOK_EVERY: Final = 10.0
"""Seconds between two looks at the GPUs."""
BUSY_SECONDS: Final = 60.0
"""Over so much time a GPU's share is a mean."""
RATE_SECONDS: Final = 300.0
"""Over so much time requests are counted, or between two tellings, if these are further apart."""
_LEAST_SECONDS: Final = 10.0
"""What was told over less time is no rate."""
_AHEAD_SECONDS: Final = 60.0
"""A file may be so much newer than the clock, which somebody may have set; more is nonsense."""


def version(service: Service) -> str:
    """Return what the workers of a service run: the image's digest, or a hash of command and environment."""
    if service.image:
        return service.image.rpartition("@")[2]
    told = json.dumps([service.command, sorted(service.environment.items())])
    return f"command:{hashlib.sha256(told.encode()).hexdigest()}"


class RequestRate:
    """Requests a second, from how many have ended when; pure."""

    def __init__(self) -> None:
        self._told: deque[tuple[float, int]] = deque(maxlen=64)

    def see(self, done: int, at: float) -> float:
        """Return the rate once ``done`` requests had ended at ``at``; 0 while too little is known."""
        if self._told and (done < self._told[-1][1] or at < self._told[-1][0]):
            self._told.clear()  # another process counts, or another clock
        if not self._told or at > self._told[-1][0]:
            self._told.append((at, done))
        while len(self._told) > 2 and at - self._told[1][0] >= RATE_SECONDS:
            self._told.popleft()
        (first, start), (last, end) = self._told[0], self._told[-1]
        return (end - start) / (last - first) if last - first >= _LEAST_SECONDS else 0.0


class Pulses:
    """Gathers what is told of the workers in ``directory``.

    Args:
        version: what they run.
        gpus: the index of each slot's GPU, in PCI order.
        looks: at the GPUs, which may hang with their driver; None where nobody can look.
    """

    def __init__(
        self,
        version: str,
        gpus: Mapping[int, int],
        looks: Beside[Look] | None,
        clock: Clock,
        directory: Path,
    ) -> None:
        self._version = version
        self._gpus = gpus
        self._looks = looks
        self._clock = clock
        self._directory = directory
        self._look_at = 0.0
        self._uuids: dict[int, str] = {}
        self._busy: dict[int, deque[tuple[float, float]]] = {}
        self._xids: dict[str, int] = {}
        self._starts: dict[int, int] = {}
        self._rates: dict[int, RequestRate] = {}
        self._complained: set[int] = set()

    def started(self, slot: int) -> None:
        """Count a start of the worker in ``slot``; it tells anew from now on."""
        self._starts[slot] = self._starts.get(slot, 0) + 1
        self._rates[slot] = RequestRate()
        self._complained.discard(slot)

    def look(self) -> None:
        """Look at the GPUs now and then; to be called often."""
        if self._looks is None or self._clock.monotonic() < self._look_at:
            return
        look = self._looks.poll()
        if look is None:
            return
        now = self._clock.monotonic()
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
        uuid = self._uuids.get(self._gpus[slot], "")
        done, failed, at = self._requests(slot)
        return Pulse(
            version=self._version,
            gpu=uuid,
            at=at,
            done=done,
            failed=failed,
            rate=round(self._rates.setdefault(slot, RequestRate()).see(done, at), 3) if at else 0.0,
            gpu_use=self._use(self._gpus[slot]),
            xid=self._xids.get(uuid, 0),
            starts=self._starts.get(slot, 0),
        )

    def _requests(self, slot: int) -> tuple[int, int, float]:
        """Return how many have ended, how many of them failed, when it was told; zeros for nonsense."""
        path, now = tell.tell_file(self._directory, slot), self._clock.wall()
        try:
            told = tell.requests(path)
            if told is not None and told[2] > now + _AHEAD_SECONDS:
                raise ValueError(f"written {told[2] - now:.0f} s from now, allowed: before now")
        except (OSError, ValueError) as error:
            if slot not in self._complained:
                self._complained.add(slot)
                log.warning("what a worker has done cannot be read", path=str(path), error=str(error))
            return 0, 0, 0.0
        return (0, 0, 0.0) if told is None else (told[0], told[1], min(told[2], now))

    def _use(self, index: int) -> float | None:
        since = self._clock.monotonic() - BUSY_SECONDS
        lately = [busy for at, busy in self._busy.get(index, ()) if at >= since]
        return round(sum(lately) / len(lately), 1) if lately else None
