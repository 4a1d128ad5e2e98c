"""A service's ``health`` parameter, written by Pulumi and read by the health checker."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Final

from contracts import codec
from contracts.limits import WholeNumber, Within
from contracts.stored import FieldMark, Stored, stored

GRACE_SECONDS: Final = 900
STALL_TIMEOUT_SECONDS: Final = 900
MAX_UNAVAILABLE_PERCENT: Final = 20
DAILY_REPORT_HOUR: Final = 7
NO_DAILY_REPORT: Final = -1


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class HealthSettings:
    """Settings of the health checker for one service.

    Attributes:
        grace_seconds: Time from launch until an instance's workers must report; twice the learned boot time
            if that is longer.
        stall_timeout_seconds: A worker that completes no request for so long is stuck, if requests wait or
            the other workers complete ten each. Must exceed the duration of the longest request.
        max_unavailable_percent: Maximum percentage of the instances that are restarted or replaced at once,
            at least one instance; twice as many per hour.
        daily_report_hour: Hour (UTC) of the daily report; `NO_DAILY_REPORT` for none.
    """

    grace_seconds: Annotated[WholeNumber, FieldMark.REQUIRED] = GRACE_SECONDS
    stall_timeout_seconds: Annotated[WholeNumber, FieldMark.REQUIRED, Stored("stuckSeconds")] = (
        STALL_TIMEOUT_SECONDS
    )
    max_unavailable_percent: Annotated[int, Within(0, 100), FieldMark.REQUIRED, Stored("mostAtOnce")] = (
        MAX_UNAVAILABLE_PERCENT
    )
    daily_report_hour: Annotated[int, Within(NO_DAILY_REPORT, 23), FieldMark.REQUIRED, Stored("digest")] = (
        DAILY_REPORT_HOUR
    )


def dumps(settings: HealthSettings) -> str:
    """Serialize the parameter's value."""
    return json.dumps(codec.dump(settings))


def parse(text: str) -> HealthSettings:
    """Parse the parameter's value; raise `ContractError` if it is invalid."""
    return codec.parse_text(HealthSettings, text)
