"""How long AWS takes, where moto takes no time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds, and MiB a second. AWS promises none of them; all are assumed, of the order that people report.

    A snapshot is pending until all changed blocks have been transferred to Amazon S3 (EBS user guide, "Create
    Amazon EBS snapshots"): ``snapshot`` seconds, and one for each ``snapshot_mib`` MiB that changed since the
    newest one of its chain (``blocks.py``). A copy is usable as soon as it is created, and what is read of it
    comes from S3 first (there, "Initialize Amazon EBS volumes"): at ``lazy_mib``, or at the rate that its
    creation asked for. ``dying`` is how long an instance that has ended keeps its volume. One that we end
    ourselves goes on for ``terminate`` (the drain hook allows 120 s).

    EFS gives ``efs_mib`` to a process that reads one large file; the most that one client gets with elastic
    throughput is 1,500 MiB/s (EFS user guide, "Amazon EFS performance specifications").
    """

    create: float = 10.0
    attach: float = 6.0
    detach: float = 6.0
    dying: float = 60.0
    terminate: float = 90.0
    snapshot: float = 30.0
    snapshot_mib: float = 250.0
    lazy_mib: float = 100.0
    efs_mib: float = 250.0

    def snapshot_of(self, changed_mib: float) -> float:
        """Return how long a snapshot takes that has so many MiB to copy."""
        return self.snapshot + changed_mib / self.snapshot_mib

    def first_read(self, mib: float, rate_mib: float) -> float:
        """Return how long so many MiB of a fresh copy take that is filled at ``rate_mib`` (0: lazily)."""
        return mib / (rate_mib or self.lazy_mib)
