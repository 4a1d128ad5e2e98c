"""The AWS account of a stack: the caller's identity and clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError

from pulumi_declared.errors import UserError

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
    """Return the account of the caller's credentials. Raises ``UserError`` if they are invalid."""
    try:
        session = _session(region_name=region, profile_name=profile)
        return identify(lambda service: session.client(service))
    except (BotoCoreError, ClientError) as error:
        raise UserError(f"credentials for AWS: {error}") from None


def assume(clients: ClientOf, role_arn: str, session: str) -> ClientOf:
    """Return the clients of a session with a role, in the region of ``clients``."""
    sts = clients("sts")
    issued = sts.assume_role(RoleArn=role_arn, RoleSessionName=session)["Credentials"]
    assumed = _session(
        aws_access_key_id=issued["AccessKeyId"],
        aws_secret_access_key=issued["SecretAccessKey"],
        aws_session_token=issued["SessionToken"],
        region_name=sts.meta.region_name,
    )
    return lambda service: assumed.client(service)


def identify(clients: ClientOf) -> Account:
    """Return the account that these clients belong to."""
    identity = clients("sts").get_caller_identity()
    return Account(identity["Account"], identity["Arn"], clients)


def _session(**options: Any) -> Any:
    import boto3  # only here: most commands do not call AWS

    return boto3.session.Session(**options)
