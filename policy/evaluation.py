"""Checks resources against the rules with the settings of an environment, as the engine does."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from contracts.sentences import alternatives
from policy.rules import RULES
from policy.rules.model import ExternalFacts, PolicyRule, Subject

CONFIG_DIRECTORY: Final = Path(__file__).parent / "config"
"""Directory of the environments' settings, ``<stack>.json`` as for ``--policy-pack-config``."""

_LEVELS: Final = ("mandatory", "advisory", "disabled")
_LEVEL: Final = "enforcementLevel"


@dataclass(frozen=True)
class Violation:
    """A violation of a rule by a resource, or by the whole stack (``resource`` is empty)."""

    rule: str
    level: str
    resource: str
    message: str


def violations(
    subjects: Sequence[Subject], config: Mapping[str, Any], facts: ExternalFacts
) -> Iterator[Violation]:
    """Yield the violations by rule; ``config`` is the result of ``settings_of``."""
    for rule in RULES:
        level, settings = effective_settings(rule, config)
        if level == "disabled":
            continue
        if rule.check is not None:
            for subject in subjects:
                for message in rule.check(subject, settings, facts):
                    yield Violation(rule.name, level, subject.name, message)
        if rule.check_stack is not None:
            by_urn = {subject.urn: subject.name for subject in subjects}
            for urn, message in rule.check_stack(subjects, settings, facts):
                yield Violation(rule.name, level, by_urn.get(urn, ""), message)


def settings_of(stack: str, directory: Path = CONFIG_DIRECTORY) -> dict[str, Any]:
    """Return the settings of an environment by rule; empty if it has no file.

    Raises:
        ValueError: an unknown rule, level or setting.
    """
    path = directory / f"{stack}.json"
    try:
        config: dict[str, Any] = dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path.name} must be a JSON object of settings by rule: {error}") from None
    rules = {rule.name: rule for rule in RULES}
    for name, value in config.items():
        if name != "all" and name not in rules:
            raise ValueError(
                f"{path.name}: {name!r} is not a rule; use all, or one of {', '.join(sorted(rules))}"
            )
        rule_config = _as_object(value)
        if rule_config.get(_LEVEL, "advisory") not in _LEVELS:
            raise ValueError(
                f"{path.name}: {name} must be {alternatives(_LEVELS)}, not {rule_config[_LEVEL]!r}"
            )
        allowed = {_LEVEL, *(rules[name].settings if name in rules else ())}
        if unknown := sorted(rule_config.keys() - allowed):
            raise ValueError(
                f"{path.name}: {name} has no setting {unknown[0]!r}; its settings are "
                f"{', '.join(sorted(allowed))}"
            )
    return config


def effective_settings(rule: PolicyRule, config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a rule's level (configured, else that of ``all``, else its default) and settings."""
    of_all, of_rule = (_as_object(config.get(name, {})) for name in ("all", rule.name))
    settings = rule.defaults() | {key: value for key, value in of_rule.items() if key != _LEVEL}
    return of_rule.get(_LEVEL, of_all.get(_LEVEL, rule.level)), settings


def _as_object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {_LEVEL: value}


def rules_in_words(stack: str) -> str:
    """Return how many rules an environment has at which level: ``13 mandatory, 4 advisory``."""
    config = settings_of(stack)
    levels = Counter(effective_settings(rule, config)[0] for rule in RULES)
    return ", ".join(f"{levels[level]} {level}" for level in _LEVELS if levels[level])


if __name__ == "__main__":
    sys.stdout.write(f"{rules_in_words(sys.argv[1])}\n")
