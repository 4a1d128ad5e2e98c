"""Checkpoints in S3, which has no directories, renames and locks. boto3 is imported here and nowhere else.

Files are uploaded first, the manifest last: without a manifest there is no checkpoint. The manifest is put
with ``If-None-Match: *``. Source: S3 user guide, "How to prevent object overwrites with conditional writes".
The files of each save have keys of their own, which its manifest has: no save writes what another one wrote.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from spot_training.errors import InUseError, SpotTrainingError, one_line
from spot_training.storage.calls import record_progress
from spot_training.storage.files import Files
from spot_training.storage.lock import OWNER, check_owner, new_owner
from spot_training.storage.manifest import FILE, File, parse, step_of, with_keys
from spot_training.storage.store import Store

T = TypeVar("T")
_DAMAGED: Final = f"{FILE}.damaged"
_PREFIX: Final = "prefix"
"""Key of a manifest: where its files are, below the checkpoint's name."""
_KINDS: Final[dict[str, type[OSError]]] = {
    **dict.fromkeys(("404", "NoSuchKey", "NotFound"), FileNotFoundError),
    **dict.fromkeys(("412", "PreconditionFailed"), FileExistsError),
}
_TRANSIENT_STATUSES: Final = (408, 409, 429)


class S3Store(Store):
    """Checkpoints below ``s3://bucket/prefix``; of two trainings only the later one can commit."""

    def __init__(self, url: str, client: Any = None, scratch: Path | None = None) -> None:
        """``client``: boto3's S3 client; ``scratch``: local directory for transfers, default temporary."""
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        if not bucket:
            raise SpotTrainingError(f"{url!r} has no bucket; write s3://bucket/prefix")
        self._bucket = bucket
        self._prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""
        self._s3 = client if client is not None else _client()
        self._scratch = Path(tempfile.mkdtemp(prefix="spot-training-", dir=scratch))
        atexit.register(_remove_scratch, self._scratch, os.getpid())
        self._files = Files()
        self._owner: dict[str, object] | None = None
        self._fetched = self._offered = ""

    @property
    def location(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def acquire(self) -> None:
        if self._owner is None:
            owner = new_owner()
            self._put(OWNER, json.dumps(owner), is_new=False)
            self._owner = owner
        else:
            check_owner(self.location, self._owner, partial(self._get, OWNER))

    def clean(self) -> None:
        """See ``Store``: files of steps without a manifest."""
        keys = [key for key in self._keys("") if step_of(key.split("/")[0]) is not None]
        whole = {key.split("/")[0] for key in keys if key.split("/")[1:] in ([FILE], [_DAMAGED])}
        for key in keys:
            if key.split("/")[0] not in whole:
                self._delete(key)

    def names(self) -> list[str]:
        return self._names_with(FILE)

    def manifest(self, name: str) -> str:
        return self._get(f"{name}/{FILE}")

    def stage(self, name: str) -> str:
        """See ``Store``; a stage is a prefix of this save below the checkpoint's name."""
        return f"{name}/{uuid.uuid4().hex[:12]}"

    def part(self, stage: str, part: str) -> Path:
        path = self._scratch / "out" / part
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def deliver(self, stage: str, part: str) -> Mapping[str, File]:
        root, files = self._scratch / "out", {}
        for path in sorted((root / part).rglob("*")):
            if path.is_file():
                key = path.relative_to(root).as_posix()
                files[key] = File(*self._files.written_digest(path))
                target = (self._bucket, f"{self._prefix}{stage}/{key}")
                self._call(partial(self._s3.upload_file, str(path), *target, Callback=_on_bytes))
        shutil.rmtree(root / part)
        return files

    def commit(self, stage: str, name: str, manifest: str) -> None:
        self.acquire()
        self._fetched, self._offered = "", stage
        manifest = with_keys(manifest, **{_PREFIX: stage.removeprefix(f"{name}/")})
        try:
            self._put(f"{name}/{FILE}", manifest, is_new=True)
        except FileExistsError:
            if self.manifest(name) != manifest:  # else a retry of a request that had succeeded
                self._offered = ""
                raise InUseError(
                    f"{self.location}/{name} exists already; use one training in {self.location}"
                ) from None

    def amend(self, name: str, manifest: str) -> None:
        self._put(f"{name}/{FILE}", manifest, is_new=False)

    def drop(self, stage: str) -> None:
        """See ``Store``; if its manifest may have been stored, whatever the answer was, the files stay."""
        shutil.rmtree(self._scratch / "out", ignore_errors=True)
        if stage == self._offered:
            return
        for key in self._keys(f"{stage}/"):
            self._delete(key)

    def fetch(self, name: str) -> Path:
        """See ``Store``: downloaded once, the files of the manifest."""
        root = self._scratch / "in" / name
        if name == self._fetched:
            return root
        shutil.rmtree(root.parent, ignore_errors=True)
        text = self.manifest(name)
        below = f"{name}/{json.loads(text).get(_PREFIX, '')}".rstrip("/")
        for file in parse(text).files:
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            self._download(f"{below}/{file}", root / file)
        self._fetched = name
        return root

    def remove(self, name: str) -> None:
        """See ``Store``; the manifest is deleted first."""
        self._delete(f"{name}/{FILE}")
        for key in self._keys(f"{name}/"):
            self._delete(key)

    def quarantine(self, name: str) -> None:
        """See ``Store``; renames its manifest."""
        with contextlib.suppress(FileNotFoundError):
            self._put(f"{name}/{_DAMAGED}", self._get(f"{name}/{FILE}"), is_new=False)
        self._delete(f"{name}/{FILE}")

    def damaged(self) -> list[str]:
        committed = self.names()
        return [name for name in self._names_with(_DAMAGED) if name not in committed]

    def exclude(self, name: str, label: str) -> None:
        """See ``Store``; S3 renames nothing, and a save of the same step would overwrite it."""
        raise SpotTrainingError(
            f"{self.location}/{name} cannot be set aside in an object store: use another location"
        )

    def release(self) -> None:
        self._owner = None

    def _names_with(self, file: str) -> list[str]:
        """Return the names of the checkpoints that have a file, newest step first."""
        keys = (key.split("/") for key in self._keys(""))
        names = [key[0] for key in keys if step_of(key[0]) is not None and key[1:] == [file]]
        return sorted(names, reverse=True)

    def _keys(self, prefix: str) -> list[str]:
        listed = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        pages = self._call(lambda: list(self._s3.get_paginator("list_objects_v2").paginate(**listed)))
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
        return [key.removeprefix(self._prefix) for key in keys]

    def _get(self, key: str) -> str:
        where = {"Bucket": self._bucket, "Key": self._prefix + key}
        text: str = self._call(lambda: self._s3.get_object(**where)["Body"].read().decode())
        return text

    def _put(self, key: str, text: str, *, is_new: bool) -> None:
        """Write an object; with ``is_new`` raise ``FileExistsError`` if it exists."""
        condition = {"IfNoneMatch": "*"} if is_new else {}
        self._call(
            lambda: self._s3.put_object(
                Bucket=self._bucket, Key=self._prefix + key, Body=text.encode(), **condition
            )
        )

    def _download(self, key: str, path: Path) -> None:
        source = (self._bucket, self._prefix + key)
        try:
            self._call(partial(self._s3.download_file, *source, str(path), Callback=_on_bytes))
        except FileNotFoundError as error:
            error.filename = key
            raise

    def _delete(self, key: str) -> None:
        self._call(partial(self._s3.delete_object, Bucket=self._bucket, Key=self._prefix + key))

    def _call(self, call: Callable[[], T]) -> T:
        """Call S3; raise ``OSError`` for errors, as a file system does, with a number if transient."""
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        record_progress()
        try:
            return call()
        except (ClientError, BotoCoreError, Boto3Error) as error:
            response = getattr(error, "response", None) or getattr(error.__context__, "response", {})
            code = response.get("Error", {}).get("Code", "")
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
            failure = _KINDS.get(code, OSError)(f"{self.location}: {one_line(error)}")
            if status >= 500 or status in _TRANSIENT_STATUSES:
                failure.errno = errno.EREMOTEIO
            raise failure from error


def _remove_scratch(folder: Path, process: int) -> None:
    if os.getpid() == process:  # a forked process has registered it, too
        shutil.rmtree(folder, ignore_errors=True)


def _on_bytes(count: int) -> None:
    record_progress()


def _client() -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise SpotTrainingError("checkpoints in S3 need boto3: pip install 'spot-training[s3]'") from None
    return boto3.client("s3", config=Config(retries={"mode": "standard", "max_attempts": 8}))
