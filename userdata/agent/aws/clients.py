"""boto3, imported only by who needs it.

A process without it is 30 MB smaller and starts half a second sooner.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from userdata.agent.machine.errors import AgentError


class AwsError(AgentError):
    """AWS refused, by ``code``, or cannot be reached: then there is none."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


@contextlib.contextmanager
def asking(what: str) -> Iterator[None]:
    """Raise `AwsError`, in one line that begins with ``what``, for an error of botocore's in the block."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    # RuntimeError: credentials that were renewed and had expired all the same (botocore.credentials).
    except (BotoCoreError, ClientError, RuntimeError) as error:
        code = error_code(error)
        raise AwsError(f"{what}: {code or type(error).__name__}: {error}", code) from None


def _client(service: str, region: str, attempts: int = 5) -> Any:
    import botocore.session
    from botocore.config import Config

    # Short timeouts: a call that hangs must not eat the two minutes of a notice.
    config = Config(
        connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": attempts}
    )
    # botocore by itself: boto3's resources and transfer manager are 3 MB that only `s3` needs.
    session: Any = botocore.session.get_session()
    with asking(f"client of {service}"):  # credentials are looked for here
        return session.create_client(service, region_name=region, config=config)


def _maker(service: str, attempts: int = 5) -> Callable[[str], Any]:
    """Return what makes clients of a service by region."""
    return lambda region: _client(service, region, attempts=attempts)


autoscaling = _maker("autoscaling")
cloudwatch = _maker("cloudwatch")
dynamodb = _maker("dynamodb", attempts=3)  # it fails fast, heartbeats come again
ec2 = _maker("ec2")
ecr = _maker("ecr")
secretsmanager = _maker("secretsmanager")
ssm = _maker("ssm")


def s3(region: str) -> Any:
    """Return a client for datasets and lists."""
    import boto3  # for its managed, parallel downloads

    return boto3.client("s3", region_name=region)


def uploader(client: Any) -> Any:
    """Return what uploads files to S3, large ones in parts and in parallel."""
    from boto3.s3.transfer import TransferConfig, create_transfer_manager

    return create_transfer_manager(client, TransferConfig(preferred_transfer_client="classic"))


def error_code(error: Exception) -> str:
    """Return the AWS error code of a botocore ClientError, or an empty string for anything else."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""
