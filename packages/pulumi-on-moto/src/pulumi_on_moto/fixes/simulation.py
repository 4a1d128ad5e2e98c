"""IAM's policy simulator for policies in the request, and EventBridge's test of a pattern.

Sources: IAM API reference, ``SimulateCustomPolicy``: a decision for each action and resource; EventBridge API
reference, ``TestEventPattern``: the event must have these fields.
"""

from __future__ import annotations

import json
from itertools import product
from typing import Any, Final

from moto.core.responses import ActionResult
from moto.events.models import EventPattern
from moto.events.responses import EventsHandler
from moto.iam.models import iam_backends
from moto.iam.responses import IamResponse

from pulumi_on_moto.fixes import Patches, RefusedError
from pulumi_on_moto.policies import AccessRequest, allowed_actions, allows, denies


def trusted_actions(account: str, role_arn: str, service: str) -> set[str] | None:
    """Return the actions that a role's trust policy grants a service; None if there is no such role."""
    for role in iam_backends[account]["aws"].roles.values():
        if role.arn == role_arn:
            statements = json.loads(role.assume_role_policy_document)["Statement"]
            granting = [
                item for item in statements if service in str(item.get("Principal", {}).get("Service"))
            ]
            return allowed_actions([{"Statement": granting}])
    return None


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


_EVENT_FIELDS = ("id", "account", "source", "time", "region", "resources", "detail-type")


def _test_pattern(response: EventsHandler) -> str:
    event = json.loads(response._get_param("Event"))
    if missing := [field for field in _EVENT_FIELDS if field not in event]:
        raise RefusedError("InvalidEventPatternException", f"Event lacks {', '.join(missing)}")
    pattern = EventPattern.load(response._get_param("EventPattern"))
    return json.dumps({"Result": pattern.matches_event(event)})


PATCHES: Final[Patches] = (
    (IamResponse, "simulate_custom_policy", _simulate),
    (EventsHandler, "test_event_pattern", _test_pattern),
)
