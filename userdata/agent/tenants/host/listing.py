"""The list of tenants in S3, asked for by its ETag: what has not changed is not sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from userdata.agent.aws.clients import AwsError, asking
from userdata.agent.machine import files
from userdata.agent.tenants import codec
from userdata.agent.tenants.model import Tenant

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class Listing:
    """The list of one host; ``kept`` is where the last one that could be read is kept until the next boot."""

    def __init__(self, client: S3Client, bucket: str, host: str, kept: Path) -> None:
        self._client = client
        self._bucket = bucket
        self._key = codec.key_of(host)
        self._kept = kept
        self._etag = ""

    def before(self) -> tuple[Tenant, ...] | None:
        """Return the list that an earlier process of this boot went by; None without one."""
        try:
            return codec.decode(self._kept.read_text())
        except OSError:
            return None

    def fetch(self) -> tuple[Tenant, ...] | None:
        """Return the list if it is another one than the last time, else None.

        Raises:
            ConfigError: it cannot be understood; said once for each list.
            AgentError: S3 refused or cannot be reached, or there is no list.
        """
        known: Any = {"IfNoneMatch": self._etag} if self._etag else {}
        place = f"s3://{self._bucket}/{self._key}"
        try:
            with asking(place):
                answer = self._client.get_object(Bucket=self._bucket, Key=self._key, **known)
                text = answer["Body"].read().decode("utf-8", "replace")
        except AwsError as error:
            if error.code in ("304", "NotModified"):
                return None
            raise
        except OSError as error:  # while it was read
            raise AwsError(f"{place}: {type(error).__name__}: {error}") from None
        self._etag = answer["ETag"]
        found = codec.decode(text)
        files.write_atomic(self._kept, text, 0o600)
        return found
