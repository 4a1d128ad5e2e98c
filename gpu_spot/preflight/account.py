"""The AWS account of a stack: the caller's identity and clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError

from gpu_spot.errors import aws_error

ClientOf: TypeAlias = Callable[[str], Any]
"""Returns the boto3 client of a service in the stack's region."""


@dataclass(frozen=True, slots=True)
class Account:
    """An AWS account.

    Attributes:
        id: twelve digits.
        caller: ARN of the caller.
        clients: returns the caller's clients.
    """

    id: str
    caller: str
    clients: ClientOf


def connect(region: str, profile: str | None) -> Account:
    """Return the account of the caller's credentials. Raises ``AwsRefusalError`` if they are invalid."""
    try:
        import boto3  # only here: most commands do not call AWS

        session: Any = boto3.session.Session(region_name=region, profile_name=profile)
        return identify(lambda service: session.client(service))
    except (BotoCoreError, ClientError) as error:
        raise aws_error("the caller's account", error) from None


def identify(clients: ClientOf) -> Account:
    """Return the account that these clients belong to."""
    identity = clients("sts").get_caller_identity()
    return Account(identity["Account"], identity["Arn"], clients)
