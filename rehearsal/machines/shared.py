"""Storage that instances share: EFS, and dataset volumes created from a snapshot at launch.

A file system is a folder, a mount a symbolic link. EFS reads and writes are counted for its cost.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from pulumi_on_moto.emulator import AwsClients
from rehearsal.machines.times import Times

_FILES: Final = 24
_POINTS: Final = 600
_SAMPLE: Final = "x,y,label\n0.5,0.5,1\n"


class Shared:
    """File systems and datasets of a rehearsal, below ``folder``; the counters are those of EFS."""

    def __init__(self, folder: Path, times: Times) -> None:
        self._folder = folder
        self.times = times
        self.written_mib = 0.0
        self.read_mib = 0.0

    def file_system(self, access_point: str) -> Path:
        """Return the folder of an access point."""
        folder = self._folder / "efs" / access_point
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def dataset(self, volume: str) -> Path:
        """Return the folder of a dataset volume."""
        folder = self._folder / "datasets" / volume
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "sample.csv").write_text(_SAMPLE)
        return folder

    def read(self, mib: float) -> float:
        """Record a read from EFS; return its seconds."""
        self.read_mib += mib
        return mib / self.times.efs_mib


def stand_in(clients: AwsClients, uri: str) -> None:
    """Write a few small deterministic files to ``s3://bucket/prefix/`` unless it has objects.

    Format of ``examples/training``: lines of x, y, and 1 inside a circle, else 0.
    """
    parts = urlsplit(uri)
    bucket, prefix, s3 = parts.netloc, parts.path.lstrip("/"), clients("s3")
    try:
        s3.head_bucket(Bucket=bucket)
    except ClientError:
        where = {} if clients.region == "us-east-1" else {"LocationConstraint": clients.region}
        s3.create_bucket(Bucket=bucket, **({"CreateBucketConfiguration": where} if where else {}))
    if s3.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1)["KeyCount"]:
        return
    for index in range(_FILES):
        chance = random.Random(index)
        drawn = [(chance.uniform(-1, 1), chance.uniform(-1, 1)) for _ in range(_POINTS)]
        lines = [f"{x:.6f},{y:.6f},{int(x * x + y * y < 0.5)}\n" for x, y in drawn]
        s3.put_object(Bucket=bucket, Key=f"{prefix}points-{index:03d}.csv", Body="".join(lines).encode())
