"""The rule for accounts: what a resource names of another account, or for it, whatever its type."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from policy.rules.model import (
    UNKNOWN,
    ExternalFacts,
    PolicyRule,
    RuleSettings,
    Subject,
    as_list,
    names_setting,
)

_ARN: Final = re.compile(r"arn:(?:aws[a-z-]*|\*):[^:\s]*:[^:\s]*:([^:\s]*):")
_ID: Final = re.compile(
    r"(\d{12})(?:/sg-\w+)?|(o-[a-z0-9]{10,32})(?:[/*].*)?|(A(?:RO|ID)A[A-Z0-9]{12,})(?::.*)?"
)
"""An account, also in front of a security group; an organization, or a path in it; a role or user by its
unique id, whose account is unknown."""
_CANONICAL_USER: Final = re.compile(r"[0-9a-f]{64}|[^@\s]+@[^@\s]+")
"""An account as in S3's grants, by its canonical id or an e-mail address."""
_WITHOUT_GRANT: Final = frozenset({"description", "tags", "tagsAll", "userData", "userDataBase64"})
_WITHOUT_ACCOUNT: Final = ("", "aws", "ec2")
"""What an ARN has in place of an account: of AWS's own things, buckets, an alarm's actions."""
_PULLING: Final = frozenset(
    {
        *("ecr:batchchecklayeravailability", "ecr:batchgetimage", "ecr:getdownloadurlforlayer"),
        "ecr:getauthorizationtoken",
    }
)
"""Actions on an image, whose account the stack file names with it."""


def _foreign(subject: Subject, settings: RuleSettings, facts: ExternalFacts) -> Iterator[str]:
    if not subject.kind:
        return
    named = dict.fromkeys(_named(subject.inputs, ""))
    trusted = {*_WITHOUT_ACCOUNT, UNKNOWN, *settings["accounts"]}
    for path, account in named:
        if account in trusted:
            continue
        account_of_stack = facts.account(subject.profile, subject.region)
        if account != account_of_stack:
            stack = (
                f"the stack's own ({account_of_stack})"
                if account_of_stack
                else "known to be the stack's own (no credentials)"
            )
            yield f"{path} names {account}, which is not {stack}; list it in accounts if it is trusted"


def _named(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the account or organization of everything that a value grants or uses."""
    if isinstance(value, Mapping):
        yield from _named_in(value, path)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _named(inner, path)
    elif isinstance(value, str) and value[:1] in ("{", "["):
        try:
            yield from _named(json.loads(value), path)
        except ValueError:
            return  # partly unknown in a preview
    else:
        yield from ((path, account) for account in _accounts(str(value), path))


def _named_in(value: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    left_out = _WITHOUT_GRANT
    if "Effect" in value:
        if value["Effect"] == "Deny":
            return
        if _PULLING.issuperset(str(action).lower() for action in as_list(value.get("Action"))):
            left_out |= {"Resource"}
    for key, inner in value.items():
        is_exclusion = "Condition." in f"{path}." and re.search(r"Not|^Null$", key)
        if key not in left_out and not is_exclusion:
            yield from _named(inner, f"{path}.{key}".lstrip("."))


def _accounts(value: str, path: str) -> Iterator[str]:
    for part in re.split(r"[\s,]+", value):
        if match := _ID.fullmatch(part):
            yield match[1] or match[2] or match[3]
    if re.search(r"(?i)grant|CanonicalUser", path) and _CANONICAL_USER.fullmatch(value):
        yield value
    for account in _ARN.findall(value):
        # A condition that is wild may only narrow who is named.
        if not (re.search(r"[*?]", account) and ".Condition." in path):
            yield account


RULES: Final = (
    PolicyRule(
        "foreign-accounts",
        "Resources name no account or organization but the stack's own and those that are trusted.",
        "mandatory",
        _foreign,
        settings={
            "accounts": names_setting(
                "Accounts, organizations (o-…) and canonical users that may be named, beside the stack's own."
            )
        },
    ),
)
