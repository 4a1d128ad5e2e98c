"""Runs all checks; missing permissions for one check do not stop the others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import Check, CheckResult
from gpu_spot.preflight.stack import Stack

_DENIED: Final = {
    "AccessDenied",
    "AccessDeniedException",
    "AuthorizationError",
    "UnauthorizedOperation",
    "UnauthorizedException",
}
_ACTION: Final = re.compile(r"to perform: ([a-z0-9-]+:\w+)")


def run_checks(stack: Stack, account: Account, checks: Iterable[Check]) -> Iterator[tuple[str, CheckResult]]:
    """Yield results with the name of their check, in order."""
    for check in checks:
        try:
            for result in check.run(stack, account):
                yield check.NAME, result
        except ClientError as error:
            yield check.NAME, _unknown(error)
        except BotoCoreError as error:
            yield check.NAME, CheckResult("remaining checks", "not known", " ".join(str(error).split()))


def _unknown(error: ClientError) -> CheckResult:
    code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
    if code not in _DENIED:
        finding = f"{error.operation_name} returned {code}: {' '.join(message.split())}"
        return CheckResult("remaining checks", "not known", finding)
    # Most denials name the action; otherwise use the operation, which nearly always has the same name.
    named = _ACTION.search(message)
    action = named[1] if named else error.operation_name
    return CheckResult("remaining checks", "not known", f"access denied for {action}", f"allow {action}")
