"""What the handlers have in common: boto3 clients, and the part of Lambda's context object that they use."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, Protocol

import boto3
from botocore.config import Config

from contracts import names
from lambdas.aws.passes import StackResources

DEFAULT_CONFIG: Final = Config(
    retries={"mode": "standard", "total_max_attempts": 3}, connect_timeout=2, read_timeout=10
)
"""For functions that run for up to a minute; timeouts are seconds per attempt."""
PARAMETERS_CONFIG: Final = DEFAULT_CONFIG.merge(
    Config(retries={"mode": "adaptive", "total_max_attempts": 8}, read_timeout=3)
)
"""Three functions read all parameters, ten a call, when a minute begins, and share 40 calls a second with the
instances. Source: Systems Manager quotas. Adaptive: a throttled client slows down."""


def client(service: str, config: Config | None = None) -> Any:
    """Return the boto3 client of a service, such as ``ec2``."""
    create: Callable[..., Any] = boto3.client
    usual = PARAMETERS_CONFIG if service == "ssm" else DEFAULT_CONFIG
    return create(service, config=config or usual)


def stack_resources(message_target: str = "") -> StackResources:
    """Return what the function's variables name; ``message_target`` is also a variable."""
    return StackResources(
        os.environ[names.ENV_STACK],
        os.environ[names.ENV_PARAMETER_ROOT],
        os.environ[names.ENV_MEMORY_TABLE],
        os.environ[names.ENV_REGISTRY_TABLE],
        os.environ[names.ENV_INSTANCE_ARNS],
        os.environ[message_target] if message_target else "",
    )


class LambdaContext(Protocol):
    """The context object of an invocation."""

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until the invocation times out."""
        ...
