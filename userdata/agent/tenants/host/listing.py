"""Reader of the tenant list in S3, with conditional requests by ETag."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from userdata.agent.aws.clients import AwsError, aws_errors
from userdata.agent.machine import files
from userdata.agent.machine.errors import ConfigError
from userdata.agent.tenants import codec
from userdata.agent.tenants.model import Tenant

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class TenantListReader:
    """Reads the tenant list of one host; ``cache`` is the file with the last valid list of this boot."""

    def __init__(self, client: S3Client, bucket: str, host: str, cache: Path) -> None:
        self._client = client
        self._bucket = bucket
        self._key = codec.key_of(host)
        self._cache = cache
        self._etag = ""

    def cached(self) -> tuple[Tenant, ...] | None:
        """Return the last valid list of this boot; None if there is none that can be read."""
        try:
            return codec.decode(self._cache.read_text("utf-8", "replace"))
        except (OSError, ConfigError):  # none, or of another release
            return None

    def fetch(self) -> tuple[Tenant, ...] | None:
        """Return the list if it changed since the last one returned, else None.

        Raises:
            ConfigError, OSError: the list is invalid, or not cached; raised by each call while it is.
            AgentError: S3 returned an error or is unreachable, or there is no list.
        """
        condition: Any = {"IfNoneMatch": self._etag} if self._etag else {}
        location = f"s3://{self._bucket}/{self._key}"
        try:
            with aws_errors(location):
                response = self._client.get_object(Bucket=self._bucket, Key=self._key, **condition)
                text = response["Body"].read().decode("utf-8", "replace")
        except AwsError as error:
            if error.code in ("304", "NotModified"):
                return None
            raise
        except OSError as error:  # while the body was read
            raise AwsError(f"{location}: {type(error).__name__}: {error}") from None
        tenants = codec.decode(text)
        files.write_atomic(self._cache, text, 0o600)
        self._etag = response["ETag"]  # last: what fails above is tried again
        return tenants
