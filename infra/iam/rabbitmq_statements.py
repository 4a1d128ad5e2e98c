"""What a queue in RabbitMQ asks of IAM: its secret, for all else is the broker's own matter."""

from __future__ import annotations

import pulumi

from infra.iam.queue_statements import QueueAccess
from infra.iam.statement import ANY_RESOURCE, Statement


def access(secret: pulumi.Input[str], *, own_broker: bool) -> QueueAccess:
    """Return what a queue's workers and its observers need; a broker of the stack's own draws a password."""
    draw = Statement("DrawPasswords", ["secretsmanager:GetRandomPassword"], ANY_RESOURCE)
    return QueueAccess("secretsmanager", secret, preview=[draw] if own_broker else [])
