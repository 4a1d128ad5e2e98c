"""Secrets of the users of a RabbitMQ broker of the stack, which a function creates and fills."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from contracts.broker_users import BrokerRole
from infra.scope import Scope


@dataclass(frozen=True)
class UserSecretArgs:
    """``service`` is the one whose queue or broker it is."""

    scope: Scope
    service: str
    role: BrokerRole


def declare_secret(
    name: str, args: UserSecretArgs, opts: pulumi.ResourceOptions
) -> aws.secretsmanager.Secret:
    """Declare the secret of a user; deleted at once, because a function can fill another one."""
    return aws.secretsmanager.Secret(
        name,
        description=f"RabbitMQ URL of the {args.role.value} of {args.service}: amqps://user:password@host:port",
        kms_key_id=args.scope.kms_key_arn,
        recovery_window_in_days=0,
        tags=args.scope.tags(name, group=args.service),
        opts=opts,
    )
