"""The stack as a whole: names, tags, budget and alarms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from contracts import names
from policy.rules.model import UNKNOWN, Outside, PolicyRule, RuleSettings, Subject

TAGGED: Final = frozenset(
    {
        *("Broker", "Bucket", "FileSystem", "Function", "Group", "LaunchTemplate", "LogGroup", "MetricAlarm"),
        *("NatGateway", "Parameter", "Queue", "Repository", "Role", "Secret", "SecurityGroup"),
        *("SpotFleetRequest", "Subnet", "Table", "Topic", "Vpc", "VpcEndpoint"),
    }
)
"""Kinds that cost money, or that permissions find by their tags."""


def _named(subject: Subject, _settings: RuleSettings, _facts: Outside) -> Iterator[str]:
    project = subject.urn.split("::")[1]
    prefix = f"{project}-{subject.stack}-"
    if subject.kind and not subject.name.startswith(prefix):
        yield f"logical name {subject.name}, allowed: {prefix}…, by which permissions are narrowed"


def _tagged(subject: Subject, settings: RuleSettings, _facts: Outside) -> Iterator[str]:
    if subject.kind not in TAGGED or subject.inputs.get("tags") == UNKNOWN:
        return
    missing = [key for key in (names.TAG_STACK, *settings["required"]) if not subject.tags.get(key)]
    if missing:
        yield f"without the tags {', '.join(missing)}, allowed: with them, so that what it costs has an owner"


def _watched(
    subjects: Sequence[Subject], _settings: RuleSettings, _facts: Outside
) -> Iterator[tuple[str, str]]:
    groups = {
        subject.tags[names.TAG_GROUP]: subject.urn
        for subject in subjects
        if subject.kind in ("Group", "SpotFleetRequest") and subject.tags.get(names.TAG_GROUP)
    }
    if groups and not any(subject.kind == "Budget" for subject in subjects):
        yield "", "GPUs without a budget, allowed: monitoring.monthlyBudgetUsd in the stack file"
    alarms = [
        subject
        for subject in subjects
        if subject.kind == "MetricAlarm" and subject.inputs.get("alarmActions")
    ]
    for group, urn in sorted(groups.items()):
        # An alarm's name is <project>-<stack>-<group>-<what rings>.
        if not any(f"-{group}-" in one.name for one in alarms):
            yield urn, f"no alarm of {group} tells anybody, allowed: one with an action"


RULES: Final = (
    PolicyRule("names", "Logical names begin with project and stack.", "mandatory", _named),
    PolicyRule(
        "tags",
        "What costs money says whose it is.",
        "mandatory",
        _tagged,
        settings={
            "required": {
                "type": "array",
                "items": {"type": "string"},
                "default": [],
                "description": "Tags beside the stack's own.",
            }
        },
    ),
    PolicyRule("budget-and-alarm", "No GPU without a budget and an alarm.", "advisory", check_stack=_watched),
)
