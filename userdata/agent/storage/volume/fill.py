"""Copy a dataset from S3 to the volume; resumable, with atomic files and a completion marker."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from userdata.agent.aws.clients import AwsError, aws_errors, transfer_errors
from userdata.agent.machine import files, log
from userdata.agent.machine.errors import AgentError, RefusedError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MARKER: Final = ".gpu-spot-dataset.json"
_WORKERS: Final = 8
_QUEUED: Final = 64
_KEEP_ALIVE_INTERVAL_SECONDS: Final = 5.0
_FORBIDDEN: Final = "403"
"""Code of a HEAD request, whose response has no body. Source: S3 API reference, ``HeadObject``."""
# Not every 403 or 404: a wrong clock, new credentials and an object deleted meanwhile pass, an archived one
# does not. Source: S3 API reference, "Error responses", ``GetObject``.
_REFUSALS: Final = frozenset(
    ("AccessDenied", "AllAccessDisabled", "InvalidBucketName", "InvalidObjectState", "NoSuchBucket")
)
_REFUSED: Final = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST)
)
"""Errors by which a file system says that it can never hold these objects."""
_ALLOWED: Final = "use objects that are files side by side, and fit on the volume"


@dataclass(frozen=True)
class _Object:
    key: str
    size: int
    modified: float


class S3Filler:
    """Copies ``s3://bucket/prefix`` to ``directory``.

    The marker holds the URI: a different dataset is copied from the start.
    """

    def __init__(self, client: S3Client | None, dataset: str, directory: Path) -> None:
        self._client = client
        self._dataset = dataset
        self._directory = directory
        self._cancelled = threading.Event()

    def is_complete(self) -> bool:
        """Return whether the marker of this dataset exists (or no dataset is configured)."""
        if not self._dataset:
            return True
        marker = files.read_json(self._directory / MARKER)
        return marker is not None and marker.get("dataset") == self._dataset

    def fill(self, keep_alive: Callable[[], None]) -> None:
        """Copy the missing files, then write the marker.

        A file counts as copied if its size and modification time are the object's, as with `aws s3 sync`.

        Raises:
            AgentError: S3 returned an error or is unreachable; copied files stay for the next attempt.
            RefusedError: no objects, objects that the volume cannot hold, no such bucket, or no access.
        """
        try:
            self._check_size(keep_alive)
            self._fill(keep_alive)
        except OSError as error:
            reason = f"dataset {self._dataset}: {error.filename or self._directory}: {error.strerror}"
            if error.errno in _REFUSED:
                raise RefusedError(f"{reason}; {_ALLOWED}") from None
            raise AgentError(reason) from None
        except ValueError as error:
            raise RefusedError(f"dataset {self._dataset}: {error}; {_ALLOWED}") from None

    def _check_size(self, keep_alive: Callable[[], None]) -> None:
        """Compare the dataset and the volume before the first byte."""
        self._directory.mkdir(parents=True, exist_ok=True)
        volume = os.statvfs(self._directory)
        capacity, size = volume.f_blocks * volume.f_frsize, sum(o.size for o in self._objects(keep_alive))
        if size > capacity:
            raise RefusedError(
                f"dataset {self._dataset} has {size:,} bytes, and its volume {capacity:,}; set "
                "volume.sizeGib above the dataset's size"
            )

    def _fill(self, keep_alive: Callable[[], None]) -> None:
        count = size = copied = 0
        self._cancelled.clear()
        running: set[Future[None]] = set()
        with ThreadPoolExecutor(_WORKERS) as pool:
            try:
                for item in self._objects(keep_alive):
                    count, size = count + 1, size + item.size
                    path = self._path(item.key)
                    if _same(path, item):
                        continue
                    running.add(pool.submit(self._copy, item, path))
                    copied += 1
                    while len(running) >= _QUEUED:
                        running = self._settle(running, keep_alive)
                while running:
                    running = self._settle(running, keep_alive)
            except BaseException:
                self._cancelled.set()  # a large object takes minutes; an interruption notice cannot wait
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        if not count:
            raise RefusedError(f"dataset {self._dataset} has no objects; use a prefix with objects")
        os.sync()  # the data before its marker
        copy = {"dataset": self._dataset, "objects": count, "bytes": size}
        files.write_json(self._directory / MARKER, copy)
        log.info("dataset complete", **copy, copied=copied)

    @staticmethod
    def _settle(running: set[Future[None]], keep_alive: Callable[[], None]) -> set[Future[None]]:
        done, rest = wait(running, timeout=_KEEP_ALIVE_INTERVAL_SECONDS, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
        keep_alive()
        return rest

    def _objects(self, keep_alive: Callable[[], None]) -> Iterator[_Object]:
        assert self._client is not None
        uri = urlsplit(self._dataset)
        with _refusals(f"dataset {self._dataset}"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=uri.netloc, Prefix=uri.path.lstrip("/")
            )
            for page in pages:
                keep_alive()
                for entry in page.get("Contents", []):
                    if not entry["Key"].endswith("/"):  # a folder object of the S3 console
                        yield _Object(entry["Key"], entry["Size"], entry["LastModified"].timestamp())

    def _path(self, key: str) -> Path:
        relative = key.removeprefix(urlsplit(self._dataset).path.lstrip("/")).lstrip("/") or Path(key).name
        if ".." in relative.split("/") or relative == MARKER:
            raise RefusedError(f"dataset {self._dataset}: key {key!r} is outside the dataset's directory")
        return self._directory / relative

    def _copy(self, item: _Object, path: Path) -> None:
        assert self._client is not None
        path.parent.mkdir(parents=True, exist_ok=True)
        # Short: a name may have all 255 bytes that a file system allows. Fixed: `download_file` makes one up
        # for each try, and leaves its file when the instance is lost.
        temporary = path.with_name(f".{hashlib.sha256(path.name.encode()).hexdigest()[:16]}.part")
        bucket, operation = urlsplit(self._dataset).netloc, f"object {item.key} of dataset {self._dataset}"
        try:
            with transfer_errors(item.key), _refusals(operation), temporary.open("wb") as file:
                self._client.download_fileobj(bucket, item.key, file, Callback=self._check_cancelled)
        except AwsError as error:
            if error.code != _FORBIDDEN:
                raise
            with _refusals(f"dataset {self._dataset}"):  # fails too unless the object alone is denied
                self._client.list_objects_v2(Bucket=bucket, Prefix=item.key, MaxKeys=1)
            raise RefusedError(f"{error}; allow the instance role to read it") from None
        if temporary.stat().st_size != item.size:
            raise AgentError(
                f"object {item.key}: received {temporary.stat().st_size} of {item.size} bytes; it changed"
            )
        os.utime(temporary, (item.modified, item.modified))
        temporary.replace(path)

    def _check_cancelled(self, size: int) -> None:
        """Raise to end the transfer if the copy is cancelled; called with each part of an object."""
        if self._cancelled.is_set():
            raise AgentError(f"dataset {self._dataset}: the copy was cancelled")


@contextlib.contextmanager
def _refusals(operation: str) -> Iterator[None]:
    """Raise `AwsError`, or `RefusedError` if only an operator can help: a retry pays for a waiting GPU."""
    try:
        with aws_errors(operation):
            yield
    except AwsError as error:
        if error.code in _REFUSALS:
            advice = "correct the bucket's name, allow the role to read it, or restore archived objects"
            raise RefusedError(f"{error}; {advice}") from None
        raise


def _same(path: Path, item: _Object) -> bool:
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return status.st_size == item.size and abs(status.st_mtime - item.modified) < 1.0
