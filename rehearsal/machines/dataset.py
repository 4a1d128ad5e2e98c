"""A small dataset in place of one that exists only on real AWS."""

from __future__ import annotations

import random
from typing import Final
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from pulumi_on_moto.sandbox import AwsClients

_FILES: Final = 24
_POINTS: Final = 600


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
