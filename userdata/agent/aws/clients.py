"""boto3, imported only by who needs it.

A process without it is 30 MB smaller and starts half a second sooner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from userdata.agent.machine.errors import AgentError

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_ssm import SSMClient


class Clients(Protocol):
    """Whoever gives clients by region, as this module does."""

    def autoscaling(self, region: str) -> AutoScalingClient:
        """Return a client for the lifecycle hooks."""
        ...

    def cloudwatch(self, region: str) -> CloudWatchClient:
        """Return a client for what rings."""
        ...

    def dynamodb(self, region: str) -> DynamoDBClient:
        """Return a client for the registry and the job table."""
        ...

    def ec2(self, region: str) -> EC2Client:
        """Return a client for volumes and snapshots."""
        ...

    def ecr(self, region: str) -> Any:
        """Return a client for the registry login."""
        ...

    def s3(self, region: str) -> S3Client:
        """Return a client for datasets."""
        ...

    def secretsmanager(self, region: str) -> Any:
        """Return a client for what repositories and queues are opened with."""
        ...

    def ssm(self, region: str) -> SSMClient:
        """Return a client for the parameter that says which run has ended."""
        ...


def _client(service: str, region: str, attempts: int = 5) -> Any:
    import botocore.session
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    # Short timeouts: a call that hangs must not eat the two minutes of a notice.
    config = Config(
        connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": attempts}
    )
    # botocore by itself: boto3's resources and transfer manager are 3 MB that only `s3` needs.
    session: Any = botocore.session.get_session()
    try:
        return session.create_client(service, region_name=region, config=config)
    except (BotoCoreError, ClientError) as error:  # credentials are looked for here
        raise as_agent_error(f"client of {service}", error) from None


def autoscaling(region: str) -> AutoScalingClient:
    """Return a client for the lifecycle hooks."""
    client: AutoScalingClient = _client("autoscaling", region)
    return client


def cloudwatch(region: str) -> CloudWatchClient:
    """Return a client for what rings."""
    client: CloudWatchClient = _client("cloudwatch", region)
    return client


def dynamodb(region: str) -> DynamoDBClient:
    """Return a client for the registry and the job table; it fails fast, heartbeats come again."""
    client: DynamoDBClient = _client("dynamodb", region, attempts=3)
    return client


def ecr(region: str) -> Any:
    """Return a client for the registry login."""
    return _client("ecr", region)


def ec2(region: str) -> EC2Client:
    """Return a client for volumes and snapshots."""
    client: EC2Client = _client("ec2", region)
    return client


def s3(region: str) -> S3Client:
    """Return a client for datasets."""
    import boto3  # for its managed, parallel downloads

    return boto3.client("s3", region_name=region)


def secretsmanager(region: str) -> Any:
    """Return a client for what repositories and queues are opened with."""
    return _client("secretsmanager", region)


def ssm(region: str) -> SSMClient:
    """Return a client for the parameter that says which run has ended."""
    client: SSMClient = _client("ssm", region)
    return client


def uploader(client: S3Client) -> Any:
    """Return what uploads files to S3, large ones in parts and in parallel."""
    from boto3.s3.transfer import TransferConfig, create_transfer_manager

    return create_transfer_manager(client, TransferConfig(preferred_transfer_client="classic"))


def error_code(error: Exception) -> str:
    """Return the AWS error code of a botocore ClientError, or an empty string for anything else."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def as_agent_error(what: str, error: Exception) -> AgentError:
    """Wrap a botocore error in one line."""
    return AgentError(f"{what}: {error_code(error) or type(error).__name__}: {error}")
