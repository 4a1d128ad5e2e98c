"""Permissions for a RabbitMQ queue: its secret. The broker handles all other access."""

from __future__ import annotations

import pulumi

from infra.iam.queue_statements import QueueAccess
from infra.iam.statement import ANY_RESOURCE, Statement


def access(secret: pulumi.Input[str], *, own_broker: bool) -> QueueAccess:
    """Return the permissions by role; the preview of a created broker generates a password."""
    draw = Statement("DrawPasswords", ["secretsmanager:GetRandomPassword"], ANY_RESOURCE)
    return QueueAccess("secretsmanager", secret, preview=[draw] if own_broker else [])
