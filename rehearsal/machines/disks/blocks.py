"""The amount of data that an incremental snapshot copies.

It is the data written since the newest existing snapshot before. The chain of snapshots continues through a
volume that is created from one of them (EBS user guide, "How Amazon EBS
snapshots work": incremental snapshots of one volume and of different volumes). Deleting a snapshot removes
only the data that no other snapshot needs (same guide, "Delete an Amazon EBS snapshot"); the next snapshot
must copy that data again.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Line:
    """Data ever written on a volume and its ancestors, in MiB, and its snapshots, oldest first."""

    size_mib: float
    written: float = 0.0
    snapshots: tuple[str, ...] = ()


class Blocks:
    """Written data by volume and snapshot id; a write counts in full even if it overwrites old blocks."""

    def __init__(self) -> None:
        self._volumes: dict[str, _Line] = {}
        self._saved: dict[str, tuple[float, tuple[str, ...]]] = {}

    def created(self, volume: str, size_gib: int, snapshot: str = "") -> None:
        """Record a new volume: blank, or created from ``snapshot``."""
        written, before = self._saved.get(snapshot, (0.0, ()))
        chain = (*before, snapshot) if snapshot in self._saved else ()
        self._volumes[volume] = _Line(size_gib * 1024.0, written, chain)

    def wrote(self, volume: str, mib: float) -> None:
        """Record a write."""
        self._volumes[volume].written += mib

    def start_snapshot(self, snapshot: str, volume: str) -> float:
        """Record a snapshot of the current content; return the MiB that it copies."""
        line = self._volumes[volume]
        written_before = [
            self._saved[snapshot_id][0] for snapshot_id in line.snapshots if snapshot_id in self._saved
        ]
        self._saved[snapshot] = (line.written, line.snapshots)
        line.snapshots = (*line.snapshots, snapshot)
        return min(line.size_mib, line.written - max(written_before, default=0.0))

    def discarded(self, snapshot: str) -> None:
        """Record the deletion of a snapshot."""
        self._saved.pop(snapshot, None)
