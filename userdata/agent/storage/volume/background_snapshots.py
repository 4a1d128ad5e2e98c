"""Snapshots ahead: taken while the job trains, so that a move copies only what has changed since.

None of them is ever moved from: the home is written after it, so its token, the writer's own, does not count
(rule 2). The move takes one more, which is short because of them.

How often. With ``p`` seconds in which writers stand still for a snapshot, an interruption every ``M`` seconds
and ``k`` seconds of copying for each second of training since the last snapshot, an interval ``T`` costs
``p / T + k T / 2 M`` of the time: least at ``T = sqrt(2 p M / k)``. Two seconds, three hours, and 1 GiB
written in 15 minutes that is copied at 75 MiB/s (``k`` = 0.015) give 28 minutes; ten times as much gives 9.
The default is 30 minutes, and none is begun before a checkpoint is newer than the last.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from userdata.agent.lease.store import DynamoLease
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError, LeaseLostError
from userdata.agent.machine.host import Host
from userdata.agent.storage.volume.ebs import AwsEbs, NotThereError
from userdata.agent.storage.volume.model import EbsVolume, HeldVolume, Snapshot
from userdata.agent.storage.volume.plan import superfluous

_LOOK_EVERY: Final = 30.0
_CLOSES_WITHIN: Final = 30.0
_LAGS_AT_MOST: Final = 600.0
"""Seconds after which a snapshot that no description has is gone."""


@dataclass(frozen=True)
class Rhythm:
    """When a snapshot is due: ``every`` seconds, if ``changed()`` (epoch seconds) is later than the last.

    None is begun while ``is_wanted`` says no.
    """

    every: float
    changed: Callable[[], float]
    is_wanted: Callable[[], bool]


def is_due(now: float, last: float | None, changed: float, every: float) -> bool:
    """Tell whether to take one. ``last``: when the newest was begun, None without any: a move copies all."""
    return last is None or (changed > last and now - last >= every)


@dataclass(eq=False)
class Ahead:
    """Takes snapshots of the mounted home, one at a time, and deletes those that are superfluous.

    Args:
        aside: does a piece of work where the caller does not wait for it.
    """

    held: HeldVolume
    mount_point: Path
    ebs: AwsEbs
    leases: DynamoLease
    host: Host
    clock: Clock
    rhythm: Rhythm
    aside: Callable[[Callable[[], None]], None]

    def __post_init__(self) -> None:
        self._alone = threading.Lock()
        self._closed = False
        self._look_at = self.clock.monotonic()
        self._knows = False
        self._last: float | None = None
        self._begun: Snapshot | None = None
        """The one that is under way, as it was begun: descriptions lag."""

    def look(self) -> None:
        """Do what is due, if anything is; called again and again, returns at once and raises nothing."""
        if self._closed or self.clock.monotonic() < self._look_at or not self.rhythm.is_wanted():
            return
        self._look_at = self.clock.monotonic() + _LOOK_EVERY
        if not self._knows or self._begun is not None or self._is_due():
            self.aside(self._work)

    def close(self) -> None:
        """Begin nothing more, and wait for what is under way: the volume is about to be unmounted."""
        self._closed = True
        if self._alone.acquire(timeout=_CLOSES_WITHIN):
            self._alone.release()

    def _is_due(self) -> bool:
        return is_due(self.clock.wall(), self._last, self.rhythm.changed(), self.rhythm.every)

    def _work(self) -> None:
        with self._alone:
            if self._closed:
                return
            try:
                self._step()
            except LeaseLostError as error:
                self._closed = True
                log.warning("no snapshots ahead any more", error=str(error))
            except AgentError as error:
                log.warning("no snapshot ahead this time", error=str(error))

    def _step(self) -> None:
        home = next((v for v in self.ebs.volumes() if v.id == self.held.volume), None)
        if home is None:  # not described yet
            return
        found = {s.id: s for s in self.ebs.snapshots()}
        if self._begun is not None:
            is_lagging = self.clock.wall() - self._begun.started < _LAGS_AT_MOST
            seen = found.get(self._begun.id, self._begun if is_lagging else None)
            if seen is not None and seen.state == "pending":
                return
            self._begun = None  # it is whole, or somebody deleted it
        if not self._knows:
            self._knows, self._last = True, self._newest(home, found)
        self._tidy(home, found)
        if any(s.state == "pending" and s.source == home.id for s in found.values()):
            return  # begun by an earlier process of this instance: one at a time
        if self._is_due():
            self._take()

    def _newest(self, home: EbsVolume, found: dict[str, Snapshot]) -> float | None:
        """When the newest snapshot was begun; now where the home itself has just been made of it."""
        own = [s.started for s in found.values() if s.source == home.id and s.state != "error"]
        copied = any(s.source == home.source for s in found.values())
        return max(own) if own else self.clock.wall() if copied else None

    def _tidy(self, home: EbsVolume, found: dict[str, Snapshot]) -> None:
        for snapshot in superfluous(found.values(), home, self.held.token):
            with contextlib.suppress(NotThereError):
                self.ebs.delete_snapshot(snapshot.id)
            log.info("snapshot deleted", snapshot=snapshot.id)

    def _take(self) -> None:
        self.leases.renew(self.held.token)
        began = self.clock.wall()
        with self.host.frozen(self.mount_point):
            taken = self.ebs.create_snapshot(self.held.volume, self.held.token)
        self._last = began
        self._begun = Snapshot(taken, "pending", self.held.volume, self.held.token, started=began)
        log.info("snapshot ahead", snapshot=taken, volume=self.held.volume, token=self.held.token)
