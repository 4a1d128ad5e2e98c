"""Recorded EventBridge payloads, and what becomes of broken ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lambdas.core.events import (
    Event,
    InterruptionNotice,
    MalformedEventError,
    RebalanceRecommendation,
    ScheduledChange,
    WakeUp,
    parse,
)

EVENTS = Path(__file__).parent.parent / "events"
INSTANCE = "i-0000000000000000a"


def recorded(name: str) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return payload


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("spot-interruption-warning", InterruptionNotice(INSTANCE, 1_000_120.0)),
        ("rebalance-recommendation", RebalanceRecommendation(INSTANCE)),
        ("launch-unsuccessful", WakeUp("EC2 Instance Launch Unsuccessful")),
        ("launch-successful", WakeUp("EC2 Instance Launch Successful")),
        ("scheduled", WakeUp("Scheduled Event")),
        ("instance-retirement", ScheduledChange((INSTANCE,), 2_000_000.0)),
    ],
)
def test_every_payload_is_read(name: str, event: Event) -> None:
    # The notice's deadline is two minutes after the event's own time, not after it was received.
    assert parse(recorded(name)) == event


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"detail-type": None}, "event field 'detail-type' must be a non-empty string, not None"),
        ({"detail": {}}, "event field 'instance-id' must be a non-empty string, not None"),
        ({"detail": "text"}, "event field 'detail' must be an object, not 'text'"),
        ({"time": "yesterday"}, "event field 'time' must be an ISO 8601 time, not 'yesterday'"),
    ],
)
def test_a_broken_payload_names_its_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedEventError, match=message):
        parse({**recorded("spot-interruption-warning"), **change})
