"""What people read: a message when something begins and ends, and one a day."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lambdas.core.health.decision import HealthDecision
from lambdas.core.health.model import Incident

MOST_SUBJECT: Final = 99
"""Characters: SNS takes less than 100, of ASCII, on one line (SNS API reference, ``Publish``)."""


def incident(stack: str, group: str, one: Incident) -> tuple[str, str]:
    """Return subject and text of the message that something began."""
    return _subject(f"{stack}/{group}: {one.key}"), f"{group} in stack {stack}: {one.what}\n"


def recovery(stack: str, group: str, one: Incident, now: float) -> tuple[str, str]:
    """Return subject and text of the message that it is over."""
    minutes = max(1, round((now - one.since) / 60))
    text = f"{group} in stack {stack}: over after {minutes} minutes. It was: {one.what}\n"
    return _subject(f"{stack}/{group}: over: {one.key}"), text


def digest(stack: str, groups: Mapping[str, HealthDecision], lost: Mapping[str, str]) -> tuple[str, str]:
    """Return subject and text of the daily message; ``lost`` are groups that could not be looked at."""
    wrong = sum(bool(decision.standing) for decision in groups.values()) + len(lost)
    lines: list[str] = []
    for name, decision in sorted(groups.items()):
        lines += [*_of_group(name, decision), ""]
    lines += [f"{name}: could not be looked at: {why}" for name, why in sorted(lost.items())]
    state = f"{wrong} of {len(groups) + len(lost)} services need you" if wrong else "all is well"
    return _subject(f"{stack}: {state}"), "\n".join(lines).rstrip() + "\n"


def _of_group(name: str, decision: HealthDecision) -> list[str]:
    facts = decision.facts
    share = f", {100 * facts.spot // facts.instances} % of them spot" if facts.instances else ""
    lines = [f"{name}: {facts.instances} instances{share}"]
    for origin in sorted({*facts.ready, *facts.draining, *facts.silent}):
        lines.append(
            f"  workers ({origin}): {facts.ready.get(origin, 0)} ready, {facts.draining.get(origin, 0)} "
            f"draining, {facts.silent.get(origin, 0)} silent"
        )
    lines.append(
        f"  in the last day: {facts.restarts} times a host's workers were restarted, {facts.replacements} "
        "instances were to be replaced"
    )
    lines += [f"  needs you: {one.what}" for one in decision.standing]
    return lines if decision.standing else [*lines, "  nothing needs you"]


def _subject(text: str) -> str:
    plain = text.encode("ascii", "replace").decode().replace("\n", " ")
    return plain[:MOST_SUBJECT]
