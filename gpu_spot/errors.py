"""Errors of the command ``gpu-spot``: sentences with a remedy, and the exit statuses that tell them apart."""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
import traceback
from enum import IntEnum
from typing import Any, Final


class ExitStatus(IntEnum):
    """How a command ended; the same for all commands.

    Of sysexits(3) only 70 is used, its status for an internal error of a program.
    """

    DONE = 0
    """It did what it was asked, and there is nothing to act on."""
    ALARM = 1
    """It found what it looks for: an alarm, a failed check, a violated policy, a group that stays short."""
    INPUT = 2
    """An option, a stack file or another input is wrong; nothing was done."""
    EXCEEDED = 3
    """A limit of an option is exceeded, or resources change with ``--expect-no-changes``."""
    ENDS = 4
    """``review --strict``: workers end, or data are lost."""
    UNKNOWN = 5
    """``review --strict``: whether workers end is not known."""
    AWS = 6
    """AWS cannot be asked: no valid credentials, no permission, no answer."""
    BUG = 70
    """An error of gpu-spot itself; the message names a file with what a report needs."""


class UserError(Exception):
    """An error that the user can fix; its message is one line with the remedy."""

    status: ExitStatus = ExitStatus.INPUT


class AwsRefusalError(UserError):
    """AWS does not answer, or refuses to."""

    status = ExitStatus.AWS


_LOG_IN: Final = "log in, for example with `aws sso login`, or choose a profile with AWS_PROFILE or --profile"
_CREDENTIALS: Final = re.compile(
    "Credential|SSO|Token|Profile|Login|UnrecognizedClient|AuthFailure|SignatureDoesNotMatch"
    "|InvalidAccessKeyId|RequestExpired"
)
"""In the names of ``botocore.exceptions`` and error codes that say that credentials are missing or bad."""
_DENIED: Final = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "UnauthorizedException")


def is_of_aws(error: Exception) -> bool:
    """Return whether an exception comes from the AWS SDK, which is not imported for that."""
    return type(error).__module__.partition(".")[0] in ("botocore", "boto3")


def aws_error(subject: str, error: Exception) -> AwsRefusalError:
    """Return what an exception of the AWS SDK means to a person; ``subject`` was to be read or changed."""
    response: dict[str, Any] = getattr(error, "response", None) or {}
    name = response.get("Error", {}).get("Code") or type(error).__name__
    text = " ".join(str(error).split())
    if _CREDENTIALS.search(name):
        return AwsRefusalError(f"{subject}: there are no valid AWS credentials ({text}); {_LOG_IN}")
    if name in _DENIED:
        return AwsRefusalError(f"{subject}: {text}; use a role that may do this")
    if not response:
        return AwsRefusalError(f"{subject}: AWS cannot be reached ({text}); check the region and the network")
    return AwsRefusalError(f"{subject}: {text}")


def unexpected(error: BaseException) -> str:
    """Return a line for an error that no code foresaw; its traceback is in the file that the line names."""
    text = "".join(traceback.format_exception(error))
    line = f"unexpected error, which is a bug of gpu-spot: {type(error).__name__}: {error}"
    with contextlib.suppress(OSError):
        with tempfile.NamedTemporaryFile(
            "w", prefix="gpu-spot-", suffix=".log", delete=False, encoding="utf-8"
        ) as file:
            file.write(f"gpu-spot {' '.join(sys.argv[1:])}\n{text}")
        line += f"; please report it with {file.name}"
    return " ".join(line.split())
