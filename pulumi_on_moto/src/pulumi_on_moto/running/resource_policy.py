"""Evaluation of the resource policies of queues and functions for EventBridge rules."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

_MATCHES: Final = ("ArnEquals", "ArnLike", "StringEquals", "StringLike")
_EVENTS: Final = "events.amazonaws.com"


@lru_cache(maxsize=1024)
def admits(policy: str, action: str, rule_arn: str) -> bool:
    """Return whether a policy allows EventBridge an action for a rule.

    ``action`` is spelled like ``sqs:SendMessage``. Only conditions on ``aws:SourceArn`` are evaluated.
    """
    service = action.partition(":")[0]
    allowing = {item.lower() for item in (action, f"{service}:*", "*")}
    for statement in _as_list(json.loads(policy).get("Statement")):
        principal = statement.get("Principal")
        services = _as_list(principal.get("Service")) if isinstance(principal, dict) else _as_list(principal)
        actions = {item.lower() for item in _as_list(statement.get("Action"))}
        if (
            statement.get("Effect") == "Allow"
            and (_EVENTS in services or "*" in services)
            and actions & allowing
            and _source_matches(statement.get("Condition") or {}, rule_arn)
        ):
            return True
    return False


def _source_matches(condition: Mapping[str, Mapping[str, Any]], rule_arn: str) -> bool:
    for operator, tests in condition.items():
        for key, patterns in tests.items():
            if key.lower() != "aws:sourcearn" or operator not in _MATCHES:
                continue  # account conditions are met: there is one account
            if not any(fnmatch.fnmatchcase(rule_arn, pattern) for pattern in _as_list(patterns)):
                return False
    return True


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
