"""``TestEventPattern`` of EventBridge.

Source: EventBridge API reference, ``TestEventPattern``: the event must have these fields.
"""

from __future__ import annotations

import json

from moto.core.exceptions import ServiceException
from moto.events.models import EventPattern
from moto.events.responses import EventsHandler

from pulumi_on_moto.fixes.fix import Fix

_FIELDS = ("id", "account", "source", "time", "region", "resources", "detail-type")


class _IncompleteEventError(ServiceException):
    code = "InvalidEventPatternException"


def _test(response: EventsHandler) -> str:
    event = json.loads(response._get_param("Event"))
    if missing := [field for field in _FIELDS if field not in event]:
        raise _IncompleteEventError(f"Event lacks {', '.join(missing)}")
    pattern = EventPattern.load(response._get_param("EventPattern"))
    return json.dumps({"Result": pattern.matches_event(event)})


EVENT_PATTERNS = Fix(
    "tests of event patterns",
    moto="TestEventPattern returns nothing",
    aws="returns whether the pattern matches the event, which needs the fields of every event",
    patches=((EventsHandler, "test_event_pattern", _test),),
)
