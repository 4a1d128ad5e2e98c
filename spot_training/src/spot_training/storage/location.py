"""The store of a location: a directory, S3, or what fsspec knows."""

from __future__ import annotations

import os
from pathlib import Path

from spot_training.storage.files import Files
from spot_training.storage.folder import FolderStore
from spot_training.storage.retry import RetryPolicy
from spot_training.storage.store import Store


def store_of(location: str | os.PathLike[str], files: Files, retry_policy: RetryPolicy) -> Store:
    """Return the store of a directory, of ``s3://bucket/prefix``, or of another URL by fsspec."""
    if str(location).startswith("s3://"):
        from spot_training.storage.s3 import S3Store  # needs boto3, which most environments lack

        return S3Store(str(location))
    if "://" in str(location):
        from spot_training.storage.fsspec import FsspecObjects
        from spot_training.storage.objects import ObjectStore

        return ObjectStore(FsspecObjects(str(location)))
    return FolderStore(Path(location), files, retry_policy)
