"""Permissions for a RabbitMQ queue: its secrets. The broker handles all other access."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from infra.iam.queue_statements import QueueAccess, in_the_network, secret_arns
from infra.iam.statement import ANY_RESOURCE, Statement, use_key
from infra.scope import Scope


def access(
    secret: pulumi.Input[str], count_secret: pulumi.Input[str] | None = None, *, own_broker: bool
) -> QueueAccess:
    """Return the permissions by role; the preview of a created broker generates a password."""
    draw = Statement("DrawPasswords", ["secretsmanager:GetRandomPassword"], ANY_RESOURCE)
    return QueueAccess("secretsmanager", secret, count_secret, preview=[draw] if own_broker else [])


def broker_users(scope: Scope, function: str, secrets: Sequence[pulumi.Input[str]]) -> list[Statement]:
    """Return the permissions of ``function``, which writes the secrets of brokers' users.

    ``secrets`` are their names and those of the administrators, which no other role may read.
    """
    actions = [
        "secretsmanager:GetSecretValue",
        "secretsmanager:PutSecretValue",
        "secretsmanager:UpdateSecretVersionStage",
    ]
    return [
        Statement("RotatePasswords", actions, secret_arns(scope, secrets)),
        *in_the_network(scope, function),
        *use_key(scope, ["lambda", "secretsmanager"]),
    ]
