"""Checkpoints in S3. boto3 is imported here and nowhere else.

The manifest is put with ``If-None-Match: *``. Source: S3 user guide, "How to prevent object overwrites with
conditional writes".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from spot_training.errors import SpotTrainingError, one_line
from spot_training.storage.bounded import record_progress
from spot_training.storage.objects import ObjectStore

T = TypeVar("T")
_MISSING = ("404", "NoSuchKey", "NotFound")


class S3Store(ObjectStore):
    """Checkpoints below ``s3://bucket/prefix``."""

    def __init__(self, url: str, client: Any = None, scratch: Path | None = None) -> None:
        """``client``: boto3 S3 client; ``scratch``: see `ObjectStore`."""
        super().__init__(S3Objects(url, client), scratch)


class S3Objects:
    """See ``Objects``; boto3 has already retried what it raises."""

    def __init__(self, url: str, client: Any = None) -> None:
        """``client``: boto3 S3 client; default: of this environment."""
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        if not bucket:
            raise SpotTrainingError(f"{url!r} has no bucket, allowed: s3://bucket/prefix")
        self._bucket = bucket
        self._prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""
        self._s3 = client if client is not None else _client()

    @property
    def location(self) -> str:
        """See ``Objects``."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def keys(self, prefix: str) -> list[str]:
        """See ``Objects``."""

        def list_keys() -> list[str]:
            pages = self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + prefix
            )
            keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
            return [key.removeprefix(self._prefix) for key in keys]

        return self._call(list_keys)

    def get(self, key: str) -> str:
        """See ``Objects``."""

        def read() -> str:
            response = self._s3.get_object(Bucket=self._bucket, Key=self._prefix + key)
            text: str = response["Body"].read().decode()
            return text

        return self._call(read)

    def put(self, key: str, text: str, *, is_new: bool) -> None:
        """See ``Objects``."""
        condition = {"IfNoneMatch": "*"} if is_new else {}
        self._call(
            lambda: self._s3.put_object(
                Bucket=self._bucket, Key=self._prefix + key, Body=text.encode(), **condition
            )
        )

    def upload(self, path: Path, key: str) -> None:
        """See ``Objects``."""
        self._call(
            partial(self._s3.upload_file, str(path), self._bucket, self._prefix + key, Callback=_on_bytes)
        )

    def download(self, key: str, path: Path) -> None:
        """See ``Objects``."""
        self._call(
            partial(self._s3.download_file, self._bucket, self._prefix + key, str(path), Callback=_on_bytes)
        )

    def delete(self, key: str) -> None:
        """See ``Objects``."""
        self._call(partial(self._s3.delete_object, Bucket=self._bucket, Key=self._prefix + key))

    def _call(self, call: Callable[[], T]) -> T:
        """Call S3; raise ``OSError`` for errors, as a file system does."""
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        record_progress()
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


def _on_bytes(count: int) -> None:
    record_progress()


def _client() -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise SpotTrainingError("checkpoints in S3 need boto3: pip install 'spot-training[s3]'") from None
    return boto3.client("s3", config=Config(retries={"mode": "standard", "max_attempts": 8}))
