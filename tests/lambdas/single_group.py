"""A stack with one group in ``FakeAws``, and its controller."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lambdas.aws.capacity.controller import Controller, GroupOutcome, build
from lambdas.aws.passes import StackResources
from tests.fakes.aws import ARNS, GROUP, ROOT, FakeAws, config

NOW = 1_000_000.0
CONTROLLER_CONFIG = StackResources("dev", ROOT, "memory", "registry", ARNS, "queue")


def declared(target: int, primary: int = 0, group: str = GROUP, **keys: Any) -> FakeAws:
    """Return a group as it is declared, whose primary group desires so many; ``keys`` are its settings."""
    aws = FakeAws(name=group)
    aws.set(group, config=config(**keys), target=str(target))
    aws.add_group("primary", desired=primary)
    aws.add_group("fallback")
    return aws


def add_ready(aws: FakeAws, side: str, *instance_ids: str, spot: bool = True) -> None:
    """Add instances that have served for an hour."""
    for name in instance_ids:
        times = {"launched": NOW - 3600, "heartbeat": NOW - 5, "since": NOW - 3400}
        aws.add_instance(side, name, spot=spot, **times)


def controller(aws: FakeAws, now: float = NOW) -> Controller:
    return build(aws.client, CONTROLLER_CONFIG, lambda: now)


def only(outcomes: list[GroupOutcome]) -> GroupOutcome:
    assert len(outcomes) == 1
    assert outcomes[0].error is None
    return outcomes[0]


def actions(outcome: GroupOutcome) -> tuple[Any, ...]:
    assert outcome.decision is not None
    return outcome.decision.actions


def activity(status: str, message: str = "", minute: float = 0) -> dict[str, Any]:
    return {
        "Description": "Launching a new EC2 instance.  Status Reason: …",
        "StatusCode": status,
        "StatusMessage": message,
        "StartTime": datetime.fromtimestamp(NOW - 60 * minute, UTC),
    }
