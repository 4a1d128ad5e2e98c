"""Checkpoints in S3. boto3 is imported here and nowhere else.

The files first, the manifest last: what has no manifest is no checkpoint. The manifest is put only where
there is none (``If-None-Match: *``: S3 guide, "How to prevent object overwrites with conditional writes").
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
from spot_training.storage.lock import OWNER, described, new_owner
from spot_training.storage.manifest import FILE, File, step_of

T = TypeVar("T")
_MISSING = ("404", "NoSuchKey", "NotFound")


class S3Store:
    """Objects below ``s3://bucket/prefix``.

    The later of two trainings wins; the earlier finds out and stops.
    """

    def __init__(self, url: str, client: Any = None, scratch: Path | None = None) -> None:
        """``client``: boto3's; ``scratch``: where files lie on their way, by default a temporary folder."""
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        if not bucket:
            raise SpotTrainingError(f"{url!r} names no bucket, allowed: s3://bucket/prefix")
        self._bucket = bucket
        self._prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""
        self._s3 = client if client is not None else _client()
        self._scratch = Path(tempfile.mkdtemp(prefix="spot-training-", dir=scratch))
        self._files = Files()
        self._owner: dict[str, object] | None = None
        self._fetched = ""

    @property
    def where(self) -> str:
        """See ``Store``."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def own(self) -> None:
        """See ``Store``."""
        if self._owner is None:
            self._owner = new_owner()
            self._put(OWNER, json.dumps(self._owner))
        elif (found := self._owned_by()) != self._owner:
            raise InUseError(
                f"{self.where} has been taken over by {described(found)}; here nothing is saved any more"
            )

    def clean(self) -> None:
        """See ``Store``; files without a manifest are written over by the save of their step."""

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
        root, found = self._scratch / "out", {}
        for path in sorted((root / part).rglob("*")):
            if path.is_file():
                key = path.relative_to(root).as_posix()
                found[key] = File(*self._files.digest(path))
                self._ask(
                    partial(self._s3.upload_file, str(path), self._bucket, f"{self._prefix}{stage}/{key}")
                )
        shutil.rmtree(root / part)
        return found

    def commit(self, stage: str, name: str, manifest: str) -> None:
        """See ``Store``."""
        self.own()
        self._fetched = ""
        try:
            self._put(f"{name}/{FILE}", manifest, IfNoneMatch="*")
        except FileExistsError:
            if self.manifest(name) != manifest:  # else an attempt whose answer was lost
                raise InUseError(
                    f"{self.where}/{name} is there already; allowed: one training in {self.where}"
                ) from None

    def drop(self, stage: str) -> None:
        """See ``Store``; what was uploaded has no manifest."""
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
            self._ask(partial(self._s3.download_file, self._bucket, self._prefix + key, str(path)))
        self._fetched = name
        return root

    def remove(self, name: str) -> None:
        """See ``Store``: the manifest first."""
        self.set_aside(name)
        for key in self._keys(f"{name}/"):
            self._delete(key)

    def set_aside(self, name: str) -> None:
        """See ``Store``: without its manifest."""
        self._delete(f"{name}/{FILE}")

    def _owned_by(self) -> object:
        try:
            found: object = json.loads(self._get(OWNER))
        except (FileNotFoundError, ValueError):
            return None
        return found

    def _keys(self, below: str) -> list[str]:
        def ask() -> list[str]:
            pages = self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + below
            )
            found = [one["Key"] for page in pages for one in page.get("Contents", ())]
            return [key.removeprefix(self._prefix) for key in found]

        return self._ask(ask)

    def _get(self, key: str) -> str:
        def ask() -> str:
            answer = self._s3.get_object(Bucket=self._bucket, Key=self._prefix + key)
            text: str = answer["Body"].read().decode()
            return text

        return self._ask(ask)

    def _delete(self, key: str) -> None:
        self._ask(partial(self._s3.delete_object, Bucket=self._bucket, Key=self._prefix + key))

    def _put(self, key: str, text: str, **condition: str) -> None:
        self._ask(
            lambda: self._s3.put_object(
                Bucket=self._bucket, Key=self._prefix + key, Body=text.encode(), **condition
            )
        )

    def _ask(self, call: Callable[[], T]) -> T:
        """Call S3 and raise ``OSError``, as a folder does. boto3 has tried again by then."""
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return call()
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in _MISSING:
                raise FileNotFoundError(f"{self.where}: {one_line(error)}") from error
            if code in ("PreconditionFailed", "412"):
                raise FileExistsError(f"{self.where}: {one_line(error)}") from error
            raise OSError(f"{self.where}: {one_line(error)}") from error
        except (BotoCoreError, Boto3Error) as error:
            raise OSError(f"{self.where}: {one_line(error)}") from error


def _client() -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise SpotTrainingError("checkpoints in S3 need boto3: pip install 'spot-training[s3]'") from None
    return boto3.client("s3", config=Config(retries={"mode": "standard", "max_attempts": 8}))
