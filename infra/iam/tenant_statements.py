"""Permissions of a tenant's users: connect to its port on the shared host."""

from __future__ import annotations

from typing import Final

import pulumi

from contracts import names
from infra.iam.statement import Statement
from infra.scope import Scope

_CHECKED: Final = {"BoolIfExists": {"ssm:SessionDocumentAccessCheck": "true"}}
"""Without this condition, a session without a document would open a shell. Source: Systems Manager guide,
"Enforce a session document permission check"."""


def forwarding(scope: Scope, *, host: str, document: pulumi.Input[str]) -> list[Statement]:
    """Allow forwarding to the port in ``document`` (an ARN), on the current instance of the host.

    The port is fixed in the document because IAM has no condition on a document's parameters.
    """
    tags = {
        f"ssm:resourceTag/{names.TAG_STACK}": scope.stack,
        f"ssm:resourceTag/{names.TAG_GROUP}": host,
    }
    return [
        Statement(
            "ForwardFromHost",
            ["ssm:StartSession"],
            [scope.arn("ec2", "instance/*")],
            {"StringEquals": tags, **_CHECKED},
        ),
        Statement("ForwardPort", ["ssm:StartSession"], [document], _CHECKED),
        Statement(
            # A session's name begins with the caller's (Systems Manager guide, "Sample IAM policies for
            # Session Manager").
            "EndOwnSession",
            ["ssm:ResumeSession", "ssm:TerminateSession"],
            [scope.arn("ssm", "session/${aws:userid}-*")],
        ),
    ]
