"""Rules for the stack: names, tags, budget and alarms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from contracts import names
from policy.rules.model import UNKNOWN, ExternalFacts, PolicyRule, RuleSettings, Subject, names_setting

TAGGED: Final = frozenset(
    {
        *(
            "Broker",
            "Bucket",
            "FileSystem",
            "Function",
            "Group",
            "LaunchTemplate",
            "LoadBalancer",
            "LogGroup",
        ),
        *("MetricAlarm", "NatGateway", "Parameter", "Queue", "Repository", "Role", "Secret", "SecurityGroup"),
        *("SpotFleetRequest", "Subnet", "Table", "TargetGroup", "Topic", "Vpc", "VpcEndpoint"),
    }
)
"""Resource kinds that cost money, or that IAM conditions select by tag."""


def _named(subject: Subject, _settings: RuleSettings, _facts: ExternalFacts) -> Iterator[str]:
    project = subject.urn.split("::")[1]
    prefix = f"{project}-{subject.stack}-"
    if subject.kind and not subject.name.startswith(prefix):
        yield f"logical name {subject.name}, allowed: {prefix}…, because IAM statements use the prefix"


def _tagged(subject: Subject, settings: RuleSettings, _facts: ExternalFacts) -> Iterator[str]:
    if subject.kind not in TAGGED or subject.inputs.get("tags") == UNKNOWN:
        return
    missing = [key for key in (names.TAG_STACK, *settings["required"]) if not subject.tags.get(key)]
    if missing:
        yield f"missing tags {', '.join(missing)}, which cost allocation needs"


def _watched(
    subjects: Sequence[Subject], _settings: RuleSettings, _facts: ExternalFacts
) -> Iterator[tuple[str, str]]:
    groups = {
        subject.tags[names.TAG_GROUP]: subject.urn
        for subject in subjects
        if subject.kind in ("Group", "SpotFleetRequest") and subject.tags.get(names.TAG_GROUP)
    }
    if groups and not any(subject.kind == "Budget" for subject in subjects):
        yield "", "no budget for GPU instances, allowed: monitoring.monthlyBudgetUsd in the stack file"
    alarms = [
        subject
        for subject in subjects
        if subject.kind == "MetricAlarm" and subject.inputs.get("alarmActions")
    ]
    for group, urn in sorted(groups.items()):
        # An alarm's name is <project>-<stack>-<group>-<condition>.
        if not any(f"-{group}-" in alarm.name for alarm in alarms):
            yield urn, f"no alarm of {group} has an action, allowed: at least one"


RULES: Final = (
    PolicyRule("names", "Logical names start with project and stack.", "mandatory", _named),
    PolicyRule(
        "tags",
        "Resources that cost money have tags for cost allocation.",
        "mandatory",
        _tagged,
        settings={"required": names_setting("Required tags, in addition to the stack's own.")},
    ),
    PolicyRule(
        "budget-and-alarm",
        "Stacks with GPU instances have a budget and alarms.",
        "advisory",
        check_stack=_watched,
    ),
)
