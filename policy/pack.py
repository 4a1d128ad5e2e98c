"""The rules as policies of Pulumi's SDK (CrossGuard). Nothing is decided here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyConfigSchema,
    PolicyResource,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.proxy import UnknownValueError

from policy import outside
from policy.rules import RULES
from policy.rules.model import UNKNOWN, Outside, PolicyRule, Subject

NAME: Final = "gpu-spot"


def policies(facts: Outside | None = None) -> list[Policy]:
    """Return a policy for each rule."""
    known = facts or outside.facts()
    return [_policy(rule, known) for rule in RULES]


def _policy(rule: PolicyRule, facts: Outside) -> Policy:
    level = EnforcementLevel(rule.level)
    schema = {key: dict(value) for key, value in rule.settings.items()}
    config = PolicyConfigSchema(schema) if schema else None

    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        assert rule.check is not None
        subject = _subject(args)
        for words in rule.check(subject, rule.defaults() | dict(args.get_config()), facts):
            report(f"{subject.name}: {words}", None)

    def validate_stack(args: StackValidationArgs, report: ReportViolation) -> None:
        assert rule.check_stack is not None
        subjects = [_subject(one) for one in args.resources]
        for urn, words in rule.check_stack(subjects, rule.defaults() | dict(args.get_config()), facts):
            report(words, urn or None)

    if rule.check is not None:
        return ResourceValidationPolicy(rule.name, rule.description, validate, level, config)
    return StackValidationPolicy(rule.name, rule.description, validate_stack, level, config)


def _subject(told: ResourceValidationArgs | PolicyResource) -> Subject:
    inputs = plain(told.props)
    provider = plain(told.provider.props) if told.provider else {}
    region = str(provider.get("region") or "") if isinstance(provider, dict) else ""
    protected = bool(told.opts.protect)
    return Subject(
        told.resource_type, told.name, told.urn, inputs, protected, "" if region == UNKNOWN else region
    )


def plain(value: Any) -> Any:
    """Return a value without the SDK's proxies, and ``UNKNOWN`` for what a preview cannot know.

    The proxies raise when an unknown value is touched, so one would hide what a rule finds beside it.
    """
    if isinstance(value, Mapping):
        return {key: _item(value, key) for key in value}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_item(value, place) for place in range(len(value))]
    return value


def _item(container: Any, key: Any) -> Any:
    try:
        return plain(container[key])
    except UnknownValueError:
        return UNKNOWN
