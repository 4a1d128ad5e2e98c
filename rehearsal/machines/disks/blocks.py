"""How much of a volume a snapshot has to copy: what was written since the newest one before that is left.

The chain of snapshots goes on through a volume that is made from one of them (EBS user guide, "How Amazon EBS
snapshots work": incremental snapshots of one volume and of different volumes). Deleting a snapshot takes away
only what no other one needs (there, "Delete an Amazon EBS snapshot"): what it alone had counts as unsaved
again for whoever comes next.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Line:
    """What was ever written on a volume and its forebears, in MiB, and the snapshots of it, oldest first."""

    size_mib: float
    written: float = 0.0
    snapshots: tuple[str, ...] = ()


class Blocks:
    """Counts for volumes and snapshots by their ids; a write counts whole, though it may meet old blocks."""

    def __init__(self) -> None:
        self._volumes: dict[str, _Line] = {}
        self._saved: dict[str, tuple[float, tuple[str, ...]]] = {}

    def created(self, volume: str, size_gib: int, snapshot: str = "") -> None:
        """Note a volume of that size: blank, or a copy of ``snapshot``."""
        written, before = self._saved.get(snapshot, (0.0, ()))
        chain = (*before, snapshot) if snapshot in self._saved else ()
        self._volumes[volume] = _Line(size_gib * 1024.0, written, chain)

    def wrote(self, volume: str, mib: float) -> None:
        """Note that so much was written."""
        self._volumes[volume].written += mib

    def start_snapshot(self, snapshot: str, volume: str) -> float:
        """Note a snapshot of what is there now; return the MiB that it has to copy."""
        line = self._volumes[volume]
        written_before = [
            self._saved[snapshot_id][0] for snapshot_id in line.snapshots if snapshot_id in self._saved
        ]
        self._saved[snapshot] = (line.written, line.snapshots)
        line.snapshots = (*line.snapshots, snapshot)
        return min(line.size_mib, line.written - max(written_before, default=0.0))

    def discarded(self, snapshot: str) -> None:
        """Note that a snapshot was deleted."""
        self._saved.pop(snapshot, None)
