"""What an entry's code may do on AWS, and values in a stack file that look like keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, Field, field_validator

from infra.schema.base import Model
from infra.schema.operations import PolicyArn

MAX_BYTES: Final = 3000
"""Of 10,240 characters of a role's inline policies. Source: IAM user guide, "IAM and AWS STS quotas"."""
ARN_BYTES: Final = 80
"""Of a secret or parameter in a policy, at most, without its name."""

ActionName: TypeAlias = Annotated[str, Field(pattern=r"^[a-z0-9-]+:[A-Za-z0-9*?]+$", max_length=128)]
ResourceArn: TypeAlias = Annotated[
    str,
    Field(pattern=r"^(\*|arn:aws[a-z-]*:[a-z0-9-]+:[A-Za-z0-9-]*:[0-9]*:[^\s\x00-\x1f]+)$", max_length=400),
]
# Ten is the default quota of managed policies of a role (IAM user guide, "IAM and AWS STS quotas").
PolicyArns: TypeAlias = Annotated[tuple[PolicyArn, ...], Field(max_length=10)]
_OPERATOR: Final = re.compile(
    r"(?i)(ForAllValues:|ForAnyValue:)?((String(Not)?(Equals(IgnoreCase)?|Like)|Arn(Not)?(Equals|Like)|Bool"
    r"|BinaryEquals|(Numeric|Date)((Not)?Equals|(Less|Greater)Than(Equals)?)|(Not)?IpAddress)(IfExists)?|Null)"
)
"""Source: IAM user guide, "IAM JSON policy elements: Condition operators"."""


def _operator(text: str) -> str:
    if not _OPERATOR.fullmatch(text):
        raise ValueError("is no condition operator of IAM; write one such as StringEquals or ArnLike")
    return text


Operator: TypeAlias = Annotated[str, AfterValidator(_operator)]


class CommandPermission(Model):
    """A statement that allows actions on resources, as in an IAM policy."""

    actions: Annotated[tuple[ActionName, ...], Field(min_length=1, max_length=20)]
    """Actions, such as ``s3:GetObject``."""
    resources: Annotated[tuple[ResourceArn, ...], Field(min_length=1, max_length=20)]
    """ARNs, or ``*`` for actions without resources."""
    conditions: dict[Operator, dict[str, tuple[str, ...] | str]] = Field(default_factory=dict)
    """Conditions by operator and key."""

    @field_validator("actions")
    @classmethod
    def _not_of_identities(cls, actions: tuple[str, ...]) -> tuple[str, ...]:
        for action in actions:
            if action.lower().startswith(("iam:", "organizations:")):
                raise ValueError(
                    f"must not have actions of iam or organizations such as {action!r}; use policyArns "
                    "for these"
                )
        return actions

    @property
    def size(self) -> int:
        """Characters in a policy."""
        return len(json.dumps(self.model_dump(mode="json")))


CommandPermissions: TypeAlias = Annotated[tuple[CommandPermission, ...], Field(max_length=20)]

# The formats are those of the services: github.com/gitleaks/gitleaks, ``config/gitleaks.toml``.
_KEYS: Final = re.compile(
    r"hf_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}"
    r"|glpat-[\w-]{16,}|\b(AKIA|ASIA)[A-Z0-9]{16}\b|xox[abposr]-[\w-]{10,}|AIza[\w-]{30,}|nvapi-[\w-]{20,}"
    r"|\br8_\w{30,}|pypi-[\w-]{30,}|dckr_pat_[\w-]{20,}|npm_\w{30,}|dop_v1_\w{30,}|sk_live_\w{16,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.|[a-z]://[^/\s:@]*:[^/\s@]+@"
)
_SECRET_NAME: Final = re.compile(
    r"(^|[_-])(token|secret|passw(or)?d|pwd|credentials?|(api|access|secret|private|auth|encryption)[_-]?key)$",
    re.IGNORECASE,
)
_OF_A_TOKENIZER: Final = re.compile(r"(bos|cls|end|eos|mask|pad|sep|start|stop|unk)[_-]token$", re.IGNORECASE)
_PLAIN: Final = re.compile(r"[^\s<>|\[\]$/{}]{8,}")
_NOT_SECRET: Final = frozenset({"disabled", "required", "optional"})
_REMEDY: Final = "looks like a key; store it in Secrets Manager, and name that secret in secrets"
_REMEDY_OF_REST: Final = (
    "looks like a key; store it in Secrets Manager, and write the name of that secret "
    "(as in repositorySecret)"
)


def looks_like_a_key(name: str, value: str) -> bool:
    """Return whether a value has the format of a service's key, or a name of keys and no spaces."""
    if _KEYS.search(value):
        return True
    is_named = _SECRET_NAME.search(name) is not None and _OF_A_TOKENIZER.search(name) is None
    return is_named and _PLAIN.fullmatch(value) is not None and value.lower() not in _NOT_SECRET


def plain_keys(
    value: Any, path: str = "", name: str = "", *, is_variable: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield path and error of each value below ``path`` that looks like a key; none shows the value.

    ``name`` is that of a variable or an option of a command, which is the part of ``path`` that says so.
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            below = f"{path}.{key}" if path else str(key)
            within = is_variable or key in ("environment", "matrix")
            yield from plain_keys(inner, below, str(key) if within else "", is_variable=within)
    elif isinstance(value, list):
        option = ""
        for index, inner in enumerate(value):
            yield from plain_keys(inner, f"{path}[{index}]", name or option, is_variable=is_variable)
            # `--api-key VALUE` is an option of a command and its value.
            option = inner.lstrip("-") if isinstance(inner, str) and inner.startswith("-") else ""
    elif isinstance(value, str):
        option, _, text = value.lstrip("-").partition("=") if value.startswith("-") else ("", "", "")
        if looks_like_a_key(name, value) or looks_like_a_key(option, text):
            yield path, _REMEDY if is_variable or path.endswith("]") else _REMEDY_OF_REST
