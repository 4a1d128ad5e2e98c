"""Snapshots taken while the job trains: a migration then copies only the changes since the last one.

A migration never restores from them: the volume is written afterwards, so they are out of date (invariant 2).
It takes one more snapshot, which is fast because it is incremental.

Interval: if a snapshot blocks writers for ``p`` seconds, an interruption comes every ``M`` seconds, and each
second of training since the last snapshot adds ``k`` seconds of copying, an interval ``T`` costs a share of
``p / T + k T / 2 M`` of the time, with its minimum at ``T = sqrt(2 p M / k)``. Two seconds, three hours, and
1 GiB written in 15 minutes and copied at 75 MiB/s (``k`` = 0.015) give 28 minutes; ten times as much data
gives 9. The default is 30 minutes. No snapshot is started unless a checkpoint is newer than the last one.
"""

from __future__ import annotations

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
from userdata.agent.storage.volume.ebs import AwsEbs
from userdata.agent.storage.volume.model import EbsVolume, HeldVolume, Snapshot
from userdata.agent.storage.volume.plan import superfluous_snapshots

_POLL_INTERVAL_SECONDS: Final = 30.0
_CLOSE_TIMEOUT_SECONDS: Final = 30.0
_MAX_DESCRIBE_LAG_SECONDS: Final = 600.0
"""Seconds after which a snapshot missing from the descriptions counts as deleted."""


@dataclass(frozen=True)
class SnapshotSchedule:
    """When to take snapshots: every ``interval_seconds`` if ``last_changed_at()`` is after the last snapshot.

    ``last_changed_at`` returns epoch seconds. No snapshot is started while ``is_enabled()`` is false.
    """

    interval_seconds: float
    last_changed_at: Callable[[], float]
    is_enabled: Callable[[], bool]


def is_due(now: float, last_at: float | None, changed_at: float, interval_seconds: float) -> bool:
    """Return whether to take a snapshot. ``last_at``: start of the newest one; None: no snapshot exists."""
    return last_at is None or (changed_at > last_at and now - last_at >= interval_seconds)


@dataclass(eq=False)
class BackgroundSnapshots:
    """Takes snapshots of the mounted volume, one at a time, and deletes superfluous ones.

    Args:
        run_in_background: runs a function without blocking the caller.
    """

    held_volume: HeldVolume
    mount_point: Path
    ebs: AwsEbs
    leases: DynamoLease
    host: Host
    clock: Clock
    schedule: SnapshotSchedule
    run_in_background: Callable[[Callable[[], None]], None]

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._next_poll_at = self.clock.monotonic()
        self._has_listed = False
        self._last_at: float | None = None
        self._pending: Snapshot | None = None
        """The snapshot in progress, as created: descriptions lag."""

    def poll(self) -> None:
        """Take or delete snapshots if due, in the background; call it in every loop. Raises nothing."""
        if self._closed or self.clock.monotonic() < self._next_poll_at or not self.schedule.is_enabled():
            return
        self._next_poll_at = self.clock.monotonic() + _POLL_INTERVAL_SECONDS
        if not self._lock.locked():
            self.run_in_background(self._run)

    def close(self) -> None:
        """Start no more snapshots and wait for a running one: the volume is about to be unmounted."""
        self._closed = True
        if self._lock.acquire(timeout=_CLOSE_TIMEOUT_SECONDS):
            self._lock.release()

    def _is_due(self) -> bool:
        return is_due(
            self.clock.wall(), self._last_at, self.schedule.last_changed_at(), self.schedule.interval_seconds
        )

    def _run(self) -> None:
        with self._lock:
            if self._closed:
                return
            try:
                if not self._has_listed or self._pending is not None or self._is_due():
                    self._step()
            except LeaseLostError as error:
                self._closed = True
                log.warning("background snapshots stopped", error=str(error))
            except AgentError as error:
                log.warning("background snapshot failed", error=str(error))

    def _step(self) -> None:
        volume = next((v for v in self.ebs.volumes() if v.id == self.held_volume.volume), None)
        if volume is None:  # not described yet
            return
        snapshots = {s.id: s for s in self.ebs.snapshots()}
        if self._pending is not None:
            is_lagging = self.clock.wall() - self._pending.started < _MAX_DESCRIBE_LAG_SECONDS
            pending = snapshots.get(self._pending.id, self._pending if is_lagging else None)
            if pending is not None and pending.state == "pending":
                return
            self._pending = None  # completed or deleted
        if not self._has_listed:
            self._has_listed, self._last_at = True, self._newest(volume, snapshots)
        self._tidy(volume, snapshots)
        if any(s.state == "pending" and s.source == volume.id for s in snapshots.values()):
            return  # started by an earlier process of this instance: one at a time
        if self._is_due():
            self._take()

    def _newest(self, volume: EbsVolume, snapshots: dict[str, Snapshot]) -> float | None:
        """Return the start of the newest snapshot; now if the volume was just created from it."""
        starts = [s.started for s in snapshots.values() if s.source == volume.id and s.state != "error"]
        is_source = any(s.source == volume.source for s in snapshots.values())
        return max(starts) if starts else self.clock.wall() if is_source else None

    def _tidy(self, volume: EbsVolume, snapshots: dict[str, Snapshot]) -> None:
        for snapshot in superfluous_snapshots(snapshots.values(), volume, self.held_volume.token):
            if self.ebs.delete_snapshot(snapshot.id):
                log.info("snapshot deleted", snapshot=snapshot.id)

    def _take(self) -> None:
        self.leases.renew(self.held_volume.token)
        started = self.clock.wall()
        with self.host.frozen(self.mount_point):
            snapshot = self.ebs.create_snapshot(self.held_volume.volume, self.held_volume.token)
        self._last_at = started
        self._pending = Snapshot(
            snapshot, "pending", self.held_volume.volume, self.held_volume.token, started=started
        )
        log.info(
            "background snapshot started",
            snapshot=snapshot,
            volume=self.held_volume.volume,
            token=self.held_volume.token,
        )
