"""What people who use one tenant of a shared host may do: reach its port, and nothing else of the host."""

from __future__ import annotations

from typing import Final

import pulumi

from contracts import names
from infra.iam.statement import Statement
from infra.scope import Scope

_CHECKED: Final = {"BoolIfExists": {"ssm:SessionDocumentAccessCheck": "true"}}
"""Without it a session with no document named would be a shell, whatever documents are allowed (Systems
Manager guide, "Enforce a session document permission check")."""


def forwarding(scope: Scope, *, host: str, document: pulumi.Input[str]) -> list[Statement]:
    """Open the port that ``document`` (an ARN) fixes, on whatever instance is the host now.

    IAM knows no condition on a document's parameters, so the port is none: it stands in the document.
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
            # Of one's own: a session's name begins with the caller's (Systems Manager guide, "Sample IAM
            # policies for Session Manager").
            "EndOwnSession",
            ["ssm:ResumeSession", "ssm:TerminateSession"],
            [scope.arn("ssm", "session/${aws:userid}-*")],
        ),
    ]
