"""How long AWS takes, where moto takes no time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds. AWS promises none of them; all are assumed, of the order that people report.

    A snapshot is pending "until all of the modified data has been transferred to Amazon S3" (EBS user guide,
    "Create Amazon EBS snapshots"), so its time grows with the volume: ``snapshot`` seconds and one for each
    ``snapshot_mib`` MiB, as if the whole volume were written. A copy is usable as soon as it is created: its
    blocks come when they are read. ``dying`` is how long an instance that has ended keeps its volume. One
    that we end ourselves goes on for ``terminate`` (the drain hook allows 120 s).
    """

    create: float = 10.0
    attach: float = 6.0
    detach: float = 6.0
    dying: float = 60.0
    terminate: float = 90.0
    snapshot: float = 30.0
    snapshot_mib: float = 250.0

    def snapshot_of(self, size_gib: int) -> float:
        """Return how long a snapshot of a volume of that size takes."""
        return self.snapshot + size_gib * 1024 / self.snapshot_mib
