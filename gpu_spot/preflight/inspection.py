"""All checks, one after the other; what one may not see does not keep the others from looking."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.remark import Check, Remark
from gpu_spot.preflight.stack import Stack

_DENIED: Final = {
    "AccessDenied",
    "AccessDeniedException",
    "AuthorizationError",
    "UnauthorizedOperation",
    "UnauthorizedException",
}
_ACTION: Final = re.compile(r"to perform: ([a-z0-9-]+:\w+)")


def inspect(stack: Stack, account: Account, checks: Iterable[Check]) -> Iterator[tuple[str, Remark]]:
    """Yield remarks with the name of their check, in order."""
    for check in checks:
        try:
            for remark in check.look(stack, account):
                yield check.NAME, remark
        except ClientError as error:
            yield check.NAME, _unseen(error)
        except BotoCoreError as error:
            yield check.NAME, Remark("the rest of this check", "not known", " ".join(str(error).split()))


def _unseen(error: ClientError) -> Remark:
    code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
    if code not in _DENIED:
        found = f"{error.operation_name} answered {code}: {' '.join(message.split())}"
        return Remark("the rest of this check", "not known", found)
    # AWS names the action in most denials; the name of the operation is nearly always the same.
    named = _ACTION.search(message)
    action = named[1] if named else error.operation_name
    return Remark("the rest of this check", "not known", f"may not {action}", f"allow {action} to look")
