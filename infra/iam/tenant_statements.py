"""Permissions of a tenant's users: sessions to its port and its container on the shared host."""

from __future__ import annotations

from typing import Any, Final

import pulumi

from contracts import names
from infra.iam.statement import Statement
from infra.scope import Scope

PRINCIPAL_TAG: Final = "gpu-spot:tenant"
"""Tag of a tenant's users and roles; its value is that of `principal`."""

_CHECKED: Final = {"BoolIfExists": {"ssm:SessionDocumentAccessCheck": "true"}}
"""Without this condition, a session without a document would open a shell. Source: Systems Manager guide,
"Enforce a session document permission check"."""

_SESSIONS: Final = "session/${aws:userid}-*"
"""A session's name begins with the caller's (Systems Manager guide, "Sample IAM policies for Session
Manager", which has this resource for all three actions on sessions)."""


def principal(stack: str, host: str, tenant: str) -> str:
    """Return the value of ``PRINCIPAL_TAG`` of a tenant's users; no other tenant of the account has it."""
    return f"{stack}/{host}/{tenant}"


def sessions(scope: Scope, *, host: str, tenant: str, document: pulumi.Input[str]) -> list[Statement]:
    """Allow a tenant's principals sessions of ``document`` (an ARN) on the current instance of the host.

    Port and command are fixed in the document because IAM has no condition on a document's parameters.
    StartSession is allowed on instance and document separately: a principal with the policies of two tenants
    could start a document of the one on the host of the other. The tag has one value, so none has both.
    """
    user = {f"aws:PrincipalTag/{PRINCIPAL_TAG}": principal(scope.stack, host, tenant)}
    tags = {f"ssm:resourceTag/{names.TAG_STACK}": scope.stack, f"ssm:resourceTag/{names.TAG_GROUP}": host}
    of_user: dict[str, Any] = {"StringEquals": user}
    own_sessions = [scope.arn("ssm", _SESSIONS)]
    return [
        Statement(
            "StartOnHost",
            ["ssm:StartSession"],
            [scope.arn("ec2", "instance/*")],
            {"StringEquals": {**tags, **user}, **_CHECKED},
        ),
        Statement("StartDocument", ["ssm:StartSession"], [document], {**of_user, **_CHECKED}),
        # Without it the session starts, and no data flows: the plugin of the AWS CLI opens the channel.
        Statement("OpenOwnSession", ["ssmmessages:OpenDataChannel"], own_sessions, of_user),
        Statement("EndOwnSession", ["ssm:ResumeSession", "ssm:TerminateSession"], own_sessions),
    ]
