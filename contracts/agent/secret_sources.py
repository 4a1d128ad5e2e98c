"""Sources of secret environment variables: ``name``, ``name:key``, or the same after ``ssm:``.

Without ``ssm:`` the name is that of a secret in Secrets Manager, with it that of a parameter in Parameter
Store. ``key`` selects a member of a value that is a JSON object.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_PARAMETER: Final = "ssm:"


@dataclass(frozen=True)
class SecretSource:
    """A secret or a parameter, and the key in its JSON value; an empty key is the whole value."""

    name: str
    key: str = ""
    is_parameter: bool = False

    def __str__(self) -> str:
        kind = "parameter" if self.is_parameter else "secret"
        return f"{kind} {self.name}" + (f", key {self.key}" if self.key else "")


def parse(text: str) -> SecretSource:
    """Return the source that a `limits.SecretReference` names."""
    name, _, key = text.removeprefix(_PARAMETER).partition(":")
    return SecretSource(name, key, text.startswith(_PARAMETER))


def secret_names(references: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the secrets in Secrets Manager, without duplicates."""
    return _names(references, is_parameter=False)


def parameter_names(references: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the parameters, without duplicates and leading slashes, as ARNs have them."""
    return tuple(name.removeprefix("/") for name in _names(references, is_parameter=True))


def _names(references: Iterable[str], *, is_parameter: bool) -> tuple[str, ...]:
    sources = map(parse, references)
    return tuple(dict.fromkeys(source.name for source in sources if source.is_parameter == is_parameter))
