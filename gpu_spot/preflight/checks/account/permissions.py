"""Permissions of the caller to create the declared resources.

Source: ``SimulatePrincipalPolicy``, for any resource. It evaluates the caller's policies and boundary and the
organization's policies, but no conditions on tags; actions that are allowed on named resources only are
reported as denied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.actions import ACTIONS
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.stack import Stack

NAME: Final = "permissions"


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Simulate every action that the declared resource types need."""
    if account.caller.endswith(":root"):
        yield CheckResult(
            account.caller, "warning", "the root user has all permissions", "use a role instead"
        )
        return
    iam = account.clients("iam")
    needed = {action for resource in stack.declared for action in ACTIONS.get(resource.type, ())}
    pages = iam.get_paginator("simulate_principal_policy").paginate(
        PolicySourceArn=principal(iam, account.caller), ActionNames=sorted(needed)
    )
    decisions = {
        result["EvalActionName"]: result["EvalDecision"]
        for page in pages
        for result in page["EvaluationResults"]
    }
    for action in sorted(needed):
        if decisions.get(action) == "explicitDeny":
            yield CheckResult(
                action, "failure", "explicitly denied by a policy", "use another role, or remove the denial"
            )
        elif decisions.get(action) != "allowed":
            finding = "not allowed on all resources; permissions on named resources cannot be simulated"
            yield CheckResult(action, "warning", finding, f"allow it for {account.caller}")
    allowed = sum(decision == "allowed" for decision in decisions.values())
    yield CheckResult(account.caller, "ok", f"{allowed} of {len(needed)} actions of `up` are allowed")


def principal(iam: Any, caller: str) -> str:
    """Return the ARN that has the policies: for a session of an assumed role that of the role."""
    if ":assumed-role/" not in caller:
        return caller
    role = caller.split("/")[1]
    return str(iam.get_role(RoleName=role)["Role"]["Arn"])
