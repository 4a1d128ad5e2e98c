"""IAM's policy simulator for policies in the request.

Source: IAM API reference, ``SimulateCustomPolicy``: a decision for each action and resource, and the context
keys that the policies need and the request lacks.
"""

from __future__ import annotations

import json
from itertools import product
from typing import Any

from moto.core.responses import ActionResult
from moto.iam.responses import IamResponse

from pulumi_on_moto.fixes.fix import Fix
from pulumi_on_moto.policies import AccessRequest, allows, denies


def _simulate(response: IamResponse) -> ActionResult:
    documents = [json.loads(text) for text in response._get_param("PolicyInputList")]
    entries: list[dict[str, Any]] = response._get_param("ContextEntries") or []
    context = {entry["ContextKeyName"]: list(entry.get("ContextKeyValues") or ()) for entry in entries}
    results = []
    for action, resource in product(
        response._get_param("ActionNames"), response._get_param("ResourceArns") or ["*"]
    ):
        request = AccessRequest(action, resource, context)
        denied = "explicitDeny" if denies(documents, request) else "implicitDeny"
        decision = "allowed" if allows(documents, request) else denied
        results.append({"EvalActionName": action, "EvalResourceName": resource, "EvalDecision": decision})
    return ActionResult({"EvaluationResults": results, "IsTruncated": False})


SIMULATION = Fix(
    "simulation of policies",
    moto="has no SimulateCustomPolicy",
    aws="evaluates policies against given values; here without resource policies and boundaries",
    patches=((IamResponse, "simulate_custom_policy", _simulate),),
)
