"""The rules as policies of Pulumi's policy SDK (CrossGuard)."""

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

from contracts.sentences import sentence
from policy import external_facts
from policy.rules import RULES
from policy.rules.model import UNKNOWN, ExternalFacts, PolicyRule, Subject

NAME: Final = "gpu-spot"


def policies(facts: ExternalFacts | None = None) -> list[Policy]:
    """Return a policy for each rule."""
    facts = facts or external_facts.read()
    return [_policy(rule, facts) for rule in RULES]


def _policy(rule: PolicyRule, facts: ExternalFacts) -> Policy:
    level = EnforcementLevel(rule.level)
    schema = {key: dict(value) for key, value in rule.settings.items()}
    config = PolicyConfigSchema(schema) if schema else None

    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        assert rule.check is not None
        subject = _subject(args)
        for message in rule.check(subject, rule.defaults() | dict(args.get_config()), facts):
            report(sentence(subject.name, message), None)

    def validate_stack(args: StackValidationArgs, report: ReportViolation) -> None:
        assert rule.check_stack is not None
        subjects = [_subject(resource) for resource in args.resources]
        for urn, message in rule.check_stack(subjects, rule.defaults() | dict(args.get_config()), facts):
            report(sentence("", message), urn or None)

    if rule.check is not None:
        return ResourceValidationPolicy(rule.name, rule.description, validate, level, config)
    return StackValidationPolicy(rule.name, rule.description, validate_stack, level, config)


def _subject(resource: ResourceValidationArgs | PolicyResource) -> Subject:
    inputs = plain(resource.props)
    props = plain(resource.provider.props) if resource.provider else {}
    provider = props if isinstance(props, dict) else {}
    region, profile = (str(provider.get(key) or "").replace(UNKNOWN, "") for key in ("region", "profile"))
    protected = bool(resource.opts.protect)
    return Subject(resource.resource_type, resource.name, resource.urn, inputs, protected, region, profile)


def plain(value: Any) -> Any:
    """Return a value without the SDK's proxies, with ``UNKNOWN`` for values that a preview does not know.

    A proxy raises when an unknown value is read, which would prevent the checks of other values.
    """
    if isinstance(value, Mapping):
        return {key: _item(value, key) for key in value}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_item(value, index) for index in range(len(value))]
    return value


def _item(container: Any, key: Any) -> Any:
    try:
        return plain(container[key])
    except UnknownValueError:
        return UNKNOWN
