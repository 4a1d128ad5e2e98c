"""The clients of AWS that a function makes once and keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import boto3
from botocore.config import Config

PATIENT: Final = Config(
    retries={"mode": "standard", "total_max_attempts": 3}, connect_timeout=2, read_timeout=10
)
"""For functions with nearly a minute each: seconds, of one try."""


def client(service: str, config: Config = PATIENT) -> Any:
    """Return a client of a service of AWS, such as ``ssm``."""
    make: Callable[..., Any] = boto3.client
    return make(service, config=config)
