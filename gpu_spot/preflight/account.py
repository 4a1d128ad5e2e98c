"""The account that the stack is for: who asks, and the clients that look."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from pulumi_declared.errors import UserError

ClientOf: TypeAlias = Callable[[str], Any]
"""A boto3 client by the name of its service, in the stack's region."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account in AWS.

    Attributes:
        id: twelve digits.
        caller: ARN of who asks.
        clients: what it asks with.
    """

    id: str
    caller: str
    clients: ClientOf


def connect(region: str, profile: str | None) -> Account:
    """Return the account of the caller's credentials; raise ``UserError`` where they are no good."""
    try:
        session = boto3.session.Session(region_name=region, profile_name=profile)
        return identified(lambda service: session.client(service))  # type: ignore[call-overload]
    except (BotoCoreError, ClientError) as error:
        raise UserError(f"credentials for AWS: {error}") from None


def identified(clients: ClientOf) -> Account:
    """Return the account that these clients ask."""
    identity = clients("sts").get_caller_identity()
    return Account(identity["Account"], identity["Arn"], clients)
