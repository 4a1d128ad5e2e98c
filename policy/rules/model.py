"""Rules and the resources that they check. Rules are pure: facts about AWS and the time are arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

Enforcement = Literal["mandatory", "advisory", "disabled"]

UNKNOWN: Final = "<unknown>"
"""A value that is unknown in a preview. Rules accept it; the update checks the actual value."""


@dataclass(frozen=True)
class Subject:
    """A resource declared by the program.

    Attributes:
        type: Pulumi's type token, for example ``aws:ec2/launchTemplate:LaunchTemplate``.
        name: the logical name.
        urn: Pulumi's URN.
        inputs: in camelCase, with ``UNKNOWN`` for unknown values at any depth.
        protected: whether the engine refuses to delete it.
        region: the provider's; empty if unknown.
        profile: the provider's AWS profile; empty: that of the credential chain.
    """

    type: str
    name: str
    urn: str
    inputs: Mapping[str, Any]
    protected: bool = False
    region: str = ""
    profile: str = ""

    @property
    def kind(self) -> str:
        """Last part of the type token of an AWS resource, for example ``LaunchTemplate``; else empty."""
        return self.type.rpartition(":")[2] if self.type.startswith("aws:") else ""

    @property
    def home(self) -> str:
        """Region of the resource, else of its provider, also while a preview does not know the former."""
        region = self.inputs.get("region")
        return self.region if region in (None, UNKNOWN) else str(region)

    @property
    def stack(self) -> str:
        """Name of the stack."""
        return self.urn.split(":")[2]

    @property
    def tags(self) -> Mapping[str, Any]:
        """Tags of the resource, also of an Auto Scaling group, whose tags are a list."""
        tags = self.inputs.get("tags") or {}
        if isinstance(tags, str):
            return {}  # unknown in a preview
        return tags if isinstance(tags, Mapping) else {tag["key"]: tag["value"] for tag in tags}


@dataclass(frozen=True)
class ExternalFacts:
    """Facts that the program does not declare.

    Attributes:
        now: the current time.
        image_created_at: creation time of an AMI, by id and region; None if unknown.
        price: On-Demand price in USD per hour, by instance type and region; None if unknown.
        account: the account of an AWS profile (empty: of the credential chain), asked in a region; empty if
            unknown.
    """

    now: datetime
    image_created_at: Callable[[str, str], datetime | None]
    price: Callable[[str, str], float | None]
    account: Callable[[str, str], str]


RuleSettings: TypeAlias = Mapping[str, Any]
RuleCheck: TypeAlias = Callable[[Subject, RuleSettings, ExternalFacts], Iterable[str]]
"""Yields a message for each violation of a resource."""

StackRuleCheck: TypeAlias = Callable[
    [Sequence[Subject], RuleSettings, ExternalFacts], Iterable[tuple[str, str]]
]
"""Yields the URN of a resource (empty: the stack) and a message for each violation."""


@dataclass(frozen=True)
class PolicyRule:
    """A rule for each resource (``check``) or for the whole stack (``check_stack``).

    ``settings``: JSON schemas, with defaults, of the settings that an environment may change.
    """

    name: str
    description: str
    level: Enforcement
    check: RuleCheck | None = None
    check_stack: StackRuleCheck | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def defaults(self) -> dict[str, Any]:
        """Return the default settings."""
        return {key: schema["default"] for key, schema in self.settings.items()}


def names_setting(description: str) -> dict[str, Any]:
    """Return the JSON schema of a setting that lists names; by default none."""
    return {"type": "array", "items": {"type": "string"}, "default": [], "description": description}


def as_list(value: Any) -> list[Any]:
    """Return the items of a list; a single value as a list; nothing if it is missing or unknown."""
    if value is None or value == UNKNOWN:
        return []
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str | Mapping) else [value]
