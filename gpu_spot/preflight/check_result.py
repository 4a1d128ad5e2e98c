"""The result of a check, and the run of all checks: missing permissions for one do not stop the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final, Literal, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.stack import Stack

Status: TypeAlias = Literal["ok", "warning", "failure", "not known"]
"""``failure``: ``up`` fails or the stack does not work. ``not known``: the caller may not read it."""

NOT_ASKED: Final = "remaining checks"
"""Subject of the result of a check that AWS did not answer: it may hide a failure."""
_DENIED: Final = {
    "AccessDenied",
    "AccessDeniedException",
    "AuthorizationError",
    "UnauthorizedOperation",
    "UnauthorizedException",
}
_ACTION: Final = re.compile(r"to perform: ([a-z0-9-]+:\w+)")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A line of the report.

    Attributes:
        subject: what was checked.
        status: the result.
        finding: the observed state.
        advice: the action to take, empty if none.
        key: the stack file's key that the result is about, empty if it is about the account.
    """

    subject: str
    status: Status
    finding: str
    advice: str = ""
    key: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the result as JSON values."""
        return {"found" if key == "finding" else key: value for key, value in asdict(self).items()}


Check: TypeAlias = Callable[[Stack, Account], Iterator[CheckResult]]
"""Yields results; read-only. An AWS error ends this check only."""


def run_checks(
    stack: Stack,
    account: Account,
    checks: Mapping[str, Check],
    on_progress: Callable[[int, int], object] = lambda *_: None,
) -> Iterator[tuple[str, CheckResult]]:
    """Yield results with the name of their check, in order; ``on_progress`` gets how many have run."""
    for number, (name, check) in enumerate(checks.items()):
        on_progress(number, len(checks))
        try:
            for result in check(stack, account):
                yield name, result
        except (BotoCoreError, ClientError) as error:
            yield name, _unknown(error)


def error_code(error: ClientError) -> str:
    """Return AWS's code of an error."""
    return str(error.response["Error"]["Code"])


def _unknown(error: BotoCoreError | ClientError) -> CheckResult:
    finding, advice = " ".join(str(error).split()), ""
    if isinstance(error, ClientError) and error_code(error) in _DENIED:
        # Most denials name the action; otherwise use the operation, which nearly always has the same name.
        named = _ACTION.search(finding)
        action = named[1] if named else error.operation_name
        finding, advice = f"access denied for {action}", f"allow {action}"
    return CheckResult(NOT_ASKED, "not known", finding, advice)
