"""Assumed durations of AWS operations, which take no time in moto."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Times:
    """Durations in seconds, rates in MiB per second; all assumed from reports, AWS guarantees none.

    A snapshot is pending until all changed blocks have been transferred to Amazon S3 (EBS user guide, "Create
    Amazon EBS snapshots"): ``snapshot`` seconds plus one for each ``snapshot_mib`` MiB that changed since the
    newest one of its chain (``blocks.py``). A volume from a snapshot is usable at once, but first reads come
    from S3 (same guide, "Initialize Amazon EBS volumes"), at ``lazy_mib`` or its initialization rate.
    ``dying`` is how long a terminated instance keeps its volume. An instance that its group terminates runs
    for ``terminate`` (the drain hook allows 120 s).

    EFS gives ``efs_mib`` to a process that reads one large file; the maximum of one client with elastic
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
        """Return the seconds of a snapshot that copies this amount."""
        return self.snapshot + changed_mib / self.snapshot_mib

    def first_read(self, mib: float, rate_mib: float) -> float:
        """Return the seconds of a first read at initialization rate ``rate_mib`` (0: lazy)."""
        return mib / (rate_mib or self.lazy_mib)
