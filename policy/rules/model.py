"""What a rule is and what it looks at. A rule is pure: what it must know of AWS or the time is handed in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

Enforcement = Literal["mandatory", "advisory", "disabled"]

UNKNOWN: Final = "<unknown>"
"""Stands for a value that a preview cannot know yet. No rule complains of it; the update asks again."""


@dataclass(frozen=True)
class Subject:
    """A resource as the program declares it.

    Attributes:
        type: Pulumi's type token, for example ``aws:ec2/launchTemplate:LaunchTemplate``.
        name: the logical name.
        urn: Pulumi's name for it.
        inputs: in camelCase; ``UNKNOWN`` at any depth for what is not known yet.
        protected: whether the engine refuses to delete it.
        region: the provider's, empty where it is not known.
    """

    type: str
    name: str
    urn: str
    inputs: Mapping[str, Any]
    protected: bool = False
    region: str = ""

    @property
    def kind(self) -> str:
        """The last part of AWS's types, for example ``LaunchTemplate``; empty for a component."""
        return self.type.rpartition(":")[2] if self.type.startswith("aws:") else ""

    @property
    def stack(self) -> str:
        """The stack's name."""
        return self.urn.split(":")[2]

    @property
    def tags(self) -> Mapping[str, Any]:
        """Its tags, for an Auto Scaling group too."""
        tags = self.inputs.get("tags") or {}
        if isinstance(tags, str):
            return {}  # not known yet
        return tags if isinstance(tags, Mapping) else {one["key"]: one["value"] for one in tags}


@dataclass(frozen=True)
class Outside:
    """What is true outside of the program.

    Attributes:
        now: the time.
        image_made: when an AMI was made, by its id and region; None where nobody can tell.
        price: dollars an hour of an instance type on-demand in a region; None where nobody knows.
    """

    now: datetime
    image_made: Callable[[str, str], datetime | None]
    price: Callable[[str, str], float | None]


RuleSettings: TypeAlias = Mapping[str, Any]
RuleCheck: TypeAlias = Callable[[Subject, RuleSettings, Outside], Iterable[str]]
"""Yields what is wrong with a resource, a sentence each."""

StackRuleCheck: TypeAlias = Callable[[Sequence[Subject], RuleSettings, Outside], Iterable[tuple[str, str]]]
"""Yields what is wrong with the stack: the URN of a resource, empty for none, and a sentence."""


@dataclass(frozen=True)
class PolicyRule:
    """A rule over each resource (``check``) or over the whole stack (``check_stack``): one of the two.

    ``settings`` are what an environment may set, each a JSON schema with its default.
    """

    name: str
    description: str
    level: Enforcement
    check: RuleCheck | None = None
    check_stack: StackRuleCheck | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def defaults(self) -> dict[str, Any]:
        """Return the settings of an environment that sets none."""
        return {key: schema["default"] for key, schema in self.settings.items()}
