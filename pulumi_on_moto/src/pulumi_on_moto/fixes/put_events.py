"""``PutEvents`` reaches functions, and knows policies and disabled rules, as ``deliver`` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from moto.events.models import EventsBackend, Rule, events_backends

from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.fixes.fix import Fix

Carrier = Callable[[Rule, Any], None]


def carry_by(backend: EventsBackend, carrier: Carrier) -> None:
    """Have ``carrier(rule, event)`` bring events that clients put to the targets of rules that match."""
    backend.local_carrier = carrier  # type: ignore[attr-defined]


def _send(rule: Rule, original_event: Any, transform_input: bool = True) -> None:
    pattern = rule.event_pattern
    if rule.state != "ENABLED" or not (pattern.get_pattern() and pattern.matches_event(original_event)):
        return
    backend = events_backends[rule.account_id][rule.region_name]
    carrier: Carrier | None = getattr(backend, "local_carrier", None)
    if carrier is None:
        raise LocalCloudError(f"rule {rule.name!r}: an event is put before the program has ended")
    carrier(rule, original_event)


PUT_EVENTS: Final = Fix(
    "events that clients put",
    moto="PutEvents fails on functions as targets, and also fires disabled and scheduled rules",
    aws="delivers by enabled rules with a pattern, where the target's policy admits them",
    known="functions as targets of events of buckets: getmoto/moto#5169",
    patches=((Rule, "send_to_targets", _send),),
)
