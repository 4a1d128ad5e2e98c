"""Whether the caller may make what the stack declares.

Source: ``SimulatePrincipalPolicy``, asked for any resource. It knows the caller's policies, boundary and the
organisation's, not conditions on tags; and what a policy allows on named resources only, it denies for any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.actions import ACTIONS
from gpu_spot.preflight.remark import Remark
from gpu_spot.preflight.stack import Stack

NAME: Final = "permissions"


def look(stack: Stack, account: Account) -> Iterator[Remark]:
    """Ask IAM about every action that the declared types need."""
    if account.caller.endswith(":root"):
        yield Remark(account.caller, "warning", "the root user may do everything", "use a role instead")
        return
    iam = account.clients("iam")
    needed = {action for one in stack.declared for action in ACTIONS.get(one.type, ())}
    pages = iam.get_paginator("simulate_principal_policy").paginate(
        PolicySourceArn=_principal(iam, account.caller), ActionNames=sorted(needed)
    )
    decisions = {
        one["EvalActionName"]: one["EvalDecision"] for page in pages for one in page["EvaluationResults"]
    }
    for action in sorted(needed):
        if decisions.get(action) == "explicitDeny":
            yield Remark(
                action, "failure", "a policy denies it", "use another role, or have the denial lifted"
            )
        elif decisions.get(action) != "allowed":
            found = "not allowed on any resource; where policies name resources, this cannot tell"
            yield Remark(action, "warning", found, f"allow {account.caller} to do it")
    allowed = sum(decision == "allowed" for decision in decisions.values())
    yield Remark(account.caller, "ok", f"may do {allowed} of {len(needed)} actions that `up` takes")


def _principal(iam: Any, caller: str) -> str:
    """Return the ARN that has the policies: of an assumed role's session the role's, which has its path."""
    if ":assumed-role/" not in caller:
        return caller
    role = caller.split("/")[1]
    return str(iam.get_role(RoleName=role)["Role"]["Arn"])
