"""What the handlers have in common: boto3 clients, and the part of Lambda's context object that they use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import boto3
from botocore.config import Config

DEFAULT_CONFIG: Final = Config(
    retries={"mode": "standard", "total_max_attempts": 3}, connect_timeout=2, read_timeout=10
)
"""For functions that run for up to a minute; timeouts are seconds per attempt."""


def client(service: str, config: Config = DEFAULT_CONFIG) -> Any:
    """Return the boto3 client of a service, such as ``ssm``."""
    create: Callable[..., Any] = boto3.client
    return create(service, config=config)


class LambdaContext(Protocol):
    """The context object of an invocation."""

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until the invocation times out."""
        ...
