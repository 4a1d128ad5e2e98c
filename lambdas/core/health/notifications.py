"""Texts of the notifications: one when an incident opens, one when it is resolved, and a daily report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lambdas.core.health.decision import HealthDecision
from lambdas.core.health.model import Incident

MAX_SUBJECT_LENGTH: Final = 99
"""SNS allows fewer than 100 ASCII characters on one line. Source: SNS API reference, ``Publish``."""


def messages(stack: str, group: str, decision: HealthDecision, now: float) -> dict[str, tuple[str, str]]:
    """Return the subjects and texts of a decision's notifications, by incident key."""
    opened = {i.key: incident_message(stack, group, i) for i in decision.new_incidents}
    return opened | {i.key: resolution_message(stack, group, i, now) for i in decision.resolved_incidents}


def incident_message(stack: str, group: str, incident: Incident) -> tuple[str, str]:
    """Return the subject and text of the notification that an incident has opened."""
    return _subject(f"{stack}/{group}: {incident.key}"), f"{group} in stack {stack}: {incident.description}\n"


def resolution_message(stack: str, group: str, incident: Incident, now: float) -> tuple[str, str]:
    """Return the subject and text of the notification that an incident is resolved."""
    minutes = max(1, round((now - incident.since) / 60))
    duration = f"resolved after {minutes} minutes"
    text = f"{group} in stack {stack}: {duration}. The incident was: {incident.description}\n"
    return _subject(f"{stack}/{group}: resolved: {incident.key}"), text


def daily_report(
    stack: str, groups: Mapping[str, HealthDecision], failed: Mapping[str, str]
) -> tuple[str, str]:
    """Return the subject and text of the daily report; ``failed`` has the groups whose check failed."""
    unhealthy = sum(bool(decision.open_incidents) for decision in groups.values()) + len(failed)
    lines: list[str] = []
    for name, decision in sorted(groups.items()):
        lines += [*_describe_group(name, decision), ""]
    lines += [f"{name}: health check failed: {reason}" for name, reason in sorted(failed.items())]
    state = (
        f"{unhealthy} of {len(groups) + len(failed)} services need attention"
        if unhealthy
        else "all services healthy"
    )
    return _subject(f"{stack}: {state}"), "\n".join(lines).rstrip() + "\n"


def _describe_group(name: str, decision: HealthDecision) -> list[str]:
    summary = decision.summary
    share = f", {100 * summary.spot_instances // summary.instances} % Spot" if summary.instances else ""
    lines = [f"{name}: {summary.instances} instances{share}"]
    for origin in sorted({*summary.ready, *summary.draining, *summary.not_reporting}):
        lines.append(
            f"  workers ({origin}): {summary.ready.get(origin, 0)} ready, {summary.draining.get(origin, 0)} "
            f"draining, {summary.not_reporting.get(origin, 0)} not reporting"
        )
    lines.append(
        f"  last 24 hours: {summary.restarts} restarts of a host's workers, "
        f"{summary.replacements} replacement requests"
    )
    lines += [f"  needs attention: {incident.description}" for incident in decision.open_incidents]
    return lines if decision.open_incidents else [*lines, "  no open incidents"]


def _subject(text: str) -> str:
    plain = text.encode("ascii", "replace").decode()[:MAX_SUBJECT_LENGTH]
    return "".join(character if character.isprintable() else " " for character in plain)
