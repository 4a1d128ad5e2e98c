"""AWS clients. boto3 is imported lazily: a process without it is 30 MB smaller and starts 0.5 s sooner."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, MutableMapping
from functools import cache
from typing import Any, Final

from userdata.agent.machine.errors import AgentError

_METADATA_ADDRESS: Final = "169.254.169.254"


class AwsError(AgentError):
    """An error response of AWS with its ``code``, or AWS is unreachable (empty ``code``)."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


@contextlib.contextmanager
def aws_errors(operation: str) -> Iterator[None]:
    """Raise `AwsError`, one line that starts with ``operation``, for an error of botocore in the block."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError  # of a proxy's page in place of an answer

    try:
        yield
    # RuntimeError: refreshed credentials are still expired (botocore.credentials).
    except (BotoCoreError, ClientError, ResponseParserError, RuntimeError) as error:
        code = error_code(error)
        raise AwsError(f"{operation}: {code or type(error).__name__}: {error}", code) from None


@contextlib.contextmanager
def transfer_errors(key: str) -> Iterator[None]:
    """Raise `AwsError` for an error of a transfer: after its retries, or of an object that changed."""
    try:
        yield
    except Exception as error:
        if type(error).__module__ != "s3transfer.exceptions":  # of boto3's transfers; boto3 exports only some
            raise
        raise AwsError(f"object {key}: {getattr(error, 'last_exception', error)}") from None


def bypass_proxy_for_metadata(environment: MutableMapping[str, str]) -> None:
    """Add the metadata service to ``NO_PROXY``, so that a proxy of the environment serves AWS's APIs alone.

    botocore asks for the role's credentials through ``HTTP_PROXY`` otherwise (botocore ``utils.py``,
    ``IMDSFetcher``: ``get_environ_proxies``). Of ``no_proxy`` and ``NO_PROXY`` the first is read (Python's
    ``urllib.request.getproxies_environment``); ``*`` means no proxy at all.
    """
    listed = environment.get("no_proxy", environment.get("NO_PROXY", ""))
    if listed.strip() != "*":
        listed = ",".join([*filter(None, [listed]), _METADATA_ADDRESS])
    environment["no_proxy"] = environment["NO_PROXY"] = listed


@cache
def _session() -> Any:
    """Return the process's session: its clients share the role's credentials, their renewal and the models.

    botocore asks the metadata service once, for a second, by default (its configuration,
    ``metadata_service_num_attempts``).
    """
    import botocore.session

    # botocore alone: boto3's resources and transfer manager take 3 MB and only `s3` needs them.
    session = botocore.session.get_session()
    session.set_config_variable("metadata_service_num_attempts", 3)
    session.set_config_variable("metadata_service_timeout", 2)
    return session


@cache
def _s3_session() -> Any:
    import boto3  # for its managed, parallel downloads

    return boto3.Session(botocore_session=_session())  # once: it registers itself with the other


# Sessions are not thread safe, clients are. Source: boto3 guide, "Session", on multithreading.
_creating = threading.RLock()


def _create(create: Callable[..., Any], service: str, region: str, **more: Any) -> Any:
    """Return a client; raise `AgentError` without credentials: it would never get any."""
    with _creating, aws_errors(f"client of {service}"):
        if _session().get_credentials() is None:
            raise AwsError(f"client of {service}: no credentials; does the metadata service have the role's?")
        return create(service, region_name=region, **more)


def _client(service: str, region: str, attempts: int = 5) -> Any:
    from botocore.config import Config

    # Short timeouts: a hanging call must not use up the two minutes of a notice.
    config = Config(
        connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": attempts}
    )
    return _create(_session().create_client, service, region, config=config)


def _client_factory(service: str, attempts: int = 5) -> Callable[[str], Any]:
    """Return a function that creates clients of a service by region."""
    return lambda region: _client(service, region, attempts=attempts)


autoscaling = _client_factory("autoscaling")
cloudwatch = _client_factory("cloudwatch")
dynamodb = _client_factory("dynamodb", attempts=3)  # fails fast: heartbeats repeat
ec2 = _client_factory("ec2")
ecr = _client_factory("ecr")
secretsmanager = _client_factory("secretsmanager")
ssm = _client_factory("ssm")


def s3(region: str) -> Any:
    """Return an S3 client for datasets and tenant lists."""
    return _create(_s3_session().client, "s3", region)


def transfer_manager(client: Any) -> Any:
    """Return a transfer manager that uploads large files in parallel parts."""
    from boto3.s3.transfer import TransferConfig, create_transfer_manager

    return create_transfer_manager(client, TransferConfig(preferred_transfer_client="classic"))


def error_code(error: Exception) -> str:
    """Return the AWS error code of a botocore ClientError, or an empty string for anything else."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def read_secret(client: Any, name: str) -> str:
    """Return the text of the Secrets Manager secret ``name`` in the client's region.

    Raises:
        AgentError: it does not exist or access is denied.
    """
    with aws_errors(f"secret {name}"):
        return str(client.get_secret_value(SecretId=name).get("SecretString", ""))


def read_parameter(client: Any, name: str) -> str:
    """Return the decrypted value of the SSM parameter ``name`` in the client's region.

    Raises:
        AgentError: it does not exist or access is denied.
    """
    with aws_errors(f"parameter {name}"):
        return str(client.get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"])
