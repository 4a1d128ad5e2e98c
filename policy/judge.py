"""Hold resources to the rules, with the settings of an environment, as the engine would."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from policy.rules import RULES
from policy.rules.model import Outside, PolicyRule, Subject

CONFIGURED: Final = Path(__file__).parent / "config"
"""RuleSettings of environments: ``<stack>.json``, as the engine's ``--policy-pack-config`` takes it."""

_LEVELS: Final = ("mandatory", "advisory", "disabled")
_LEVEL: Final = "enforcementLevel"


@dataclass(frozen=True)
class Violation:
    """A rule that a resource, or the stack as a whole (``resource`` is empty), does not keep."""

    rule: str
    level: str
    resource: str
    words: str


def violations(subjects: Sequence[Subject], config: Mapping[str, Any], facts: Outside) -> Iterator[Violation]:
    """Yield what is violated, rule after rule. ``config`` is what ``settings_of`` returns."""
    for rule in RULES:
        level, settings = chosen(rule, config)
        if level == "disabled":
            continue
        if rule.check is not None:
            for subject in subjects:
                for words in rule.check(subject, settings, facts):
                    yield Violation(rule.name, level, subject.name, words)
        if rule.check_stack is not None:
            by_urn = {subject.urn: subject.name for subject in subjects}
            for urn, words in rule.check_stack(subjects, settings, facts):
                yield Violation(rule.name, level, by_urn.get(urn, ""), words)


def settings_of(stack: str, folder: Path = CONFIGURED) -> dict[str, Any]:
    """Return the settings of an environment, by rule; none where it has no file.

    Raises ``ValueError`` for a rule, a level or a setting that there is not.
    """
    path = folder / f"{stack}.json"
    config: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    rules = {rule.name: rule for rule in RULES}
    for name, given in config.items():
        if name != "all" and name not in rules:
            raise ValueError(f"{path.name}: {name!r} is no rule, allowed: all, {', '.join(sorted(rules))}")
        told = {_LEVEL: given} if isinstance(given, str) else given
        if told.get(_LEVEL, "advisory") not in _LEVELS:
            raise ValueError(f"{path.name}: {name} is {told[_LEVEL]!r}, allowed: {', '.join(_LEVELS)}")
        allowed = {_LEVEL, *(rules[name].settings if name in rules else ())}
        if unknown := sorted(told.keys() - allowed):
            raise ValueError(f"{path.name}: {name}.{unknown[0]}, allowed: {', '.join(sorted(allowed))}")
    return config


def chosen(rule: PolicyRule, config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a rule's level (its own, else that of ``all``, else its default) and its settings."""
    given = config.get(rule.name, {})
    told = {_LEVEL: given} if isinstance(given, str) else given
    settings = rule.defaults() | {key: value for key, value in told.items() if key != _LEVEL}
    return told.get(_LEVEL, config.get("all", rule.level)), settings
