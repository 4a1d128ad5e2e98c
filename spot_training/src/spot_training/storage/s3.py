"""Checkpoints in S3. boto3 is imported here and nowhere else.

Files are uploaded first, the manifest last: without a manifest there is no checkpoint. The manifest is put
only if it does not exist (``If-None-Match: *``; S3 user guide, "How to prevent object overwrites with
conditional writes").
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from spot_training.errors import InUseError, SpotTrainingError, one_line
from spot_training.storage.files import Files
from spot_training.storage.lock import OWNER, describe_owner, new_owner
from spot_training.storage.manifest import FILE, File, step_of

T = TypeVar("T")
_MISSING = ("404", "NoSuchKey", "NotFound")


class S3Store:
    """Checkpoints below ``s3://bucket/prefix``.

    S3 has no locks: of two trainings the later one wins, and the earlier one fails at its next commit.
    """

    def __init__(self, url: str, client: Any = None, scratch: Path | None = None) -> None:
        """``client``: boto3 S3 client; ``scratch``: local directory for transfers, default temporary."""
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        if not bucket:
            raise SpotTrainingError(f"{url!r} has no bucket, allowed: s3://bucket/prefix")
        self._bucket = bucket
        self._prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""
        self._s3 = client if client is not None else _client()
        self._scratch = Path(tempfile.mkdtemp(prefix="spot-training-", dir=scratch))
        self._files = Files()
        self._owner: dict[str, object] | None = None
        self._fetched = ""

    @property
    def location(self) -> str:
        """See ``Store``."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def acquire(self) -> None:
        """See ``Store``."""
        if self._owner is None:
            self._owner = new_owner()
            self._put(OWNER, json.dumps(self._owner))
        elif (owner := self._read_owner()) != self._owner:
            raise InUseError(
                f"{self.location} was taken over by {describe_owner(owner)}; this process can no longer save"
            )

    def clean(self) -> None:
        """See ``Store``; files without a manifest are overwritten by the next save of their step."""

    def names(self) -> list[str]:
        """See ``Store``."""
        return sorted(
            (
                parts[0]
                for parts in (key.split("/") for key in self._keys(""))
                if step_of(parts[0]) is not None and parts[1:] == [FILE]
            ),
            reverse=True,
        )

    def manifest(self, name: str) -> str:
        """See ``Store``."""
        return self._get(f"{name}/{FILE}")

    def stage(self, name: str) -> str:
        """See ``Store``; a stage is the checkpoint's name."""
        return name

    def part(self, stage: str, part: str) -> Path:
        """See ``Store``."""
        path = self._scratch / "out" / part
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def deliver(self, stage: str, part: str) -> Mapping[str, File]:
        """See ``Store``."""
        root, files = self._scratch / "out", {}
        for path in sorted((root / part).rglob("*")):
            if path.is_file():
                key = path.relative_to(root).as_posix()
                files[key] = File(*self._files.digest(path))
                self._call(
                    partial(self._s3.upload_file, str(path), self._bucket, f"{self._prefix}{stage}/{key}")
                )
        shutil.rmtree(root / part)
        return files

    def commit(self, stage: str, name: str, manifest: str) -> None:
        """See ``Store``."""
        self.acquire()
        self._fetched = ""
        try:
            self._put(f"{name}/{FILE}", manifest, IfNoneMatch="*")
        except FileExistsError:
            if self.manifest(name) != manifest:  # else a retry of a request that had succeeded
                raise InUseError(
                    f"{self.location}/{name} exists already; allowed: one training in {self.location}"
                ) from None

    def drop(self, stage: str) -> None:
        """See ``Store``; uploaded files stay without a manifest."""
        shutil.rmtree(self._scratch / "out", ignore_errors=True)

    def fetch(self, name: str) -> Path:
        """See ``Store``: downloaded once."""
        root = self._scratch / "in" / name
        if name == self._fetched:
            return root
        shutil.rmtree(root.parent, ignore_errors=True)
        for key in self._keys(f"{name}/"):
            path = root / key.removeprefix(f"{name}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            self._call(partial(self._s3.download_file, self._bucket, self._prefix + key, str(path)))
        self._fetched = name
        return root

    def remove(self, name: str) -> None:
        """See ``Store``; the manifest is deleted first."""
        self.quarantine(name)
        for key in self._keys(f"{name}/"):
            self._delete(key)

    def quarantine(self, name: str) -> None:
        """See ``Store``; deletes its manifest."""
        self._delete(f"{name}/{FILE}")

    def _read_owner(self) -> object:
        try:
            owner: object = json.loads(self._get(OWNER))
        except (FileNotFoundError, ValueError):
            return None
        return owner

    def _keys(self, below: str) -> list[str]:
        def list_keys() -> list[str]:
            pages = self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + below
            )
            keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
            return [key.removeprefix(self._prefix) for key in keys]

        return self._call(list_keys)

    def _get(self, key: str) -> str:
        def read() -> str:
            response = self._s3.get_object(Bucket=self._bucket, Key=self._prefix + key)
            text: str = response["Body"].read().decode()
            return text

        return self._call(read)

    def _delete(self, key: str) -> None:
        self._call(partial(self._s3.delete_object, Bucket=self._bucket, Key=self._prefix + key))

    def _put(self, key: str, text: str, **condition: str) -> None:
        self._call(
            lambda: self._s3.put_object(
                Bucket=self._bucket, Key=self._prefix + key, Body=text.encode(), **condition
            )
        )

    def _call(self, call: Callable[[], T]) -> T:
        """Call S3; raise ``OSError`` for errors, like `FolderStore`. boto3 has already retried."""
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return call()
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in _MISSING:
                raise FileNotFoundError(f"{self.location}: {one_line(error)}") from error
            if code in ("PreconditionFailed", "412"):
                raise FileExistsError(f"{self.location}: {one_line(error)}") from error
            raise OSError(f"{self.location}: {one_line(error)}") from error
        except (BotoCoreError, Boto3Error) as error:
            raise OSError(f"{self.location}: {one_line(error)}") from error


def _client() -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise SpotTrainingError("checkpoints in S3 need boto3: pip install 'spot-training[s3]'") from None
    return boto3.client("s3", config=Config(retries={"mode": "standard", "max_attempts": 8}))
