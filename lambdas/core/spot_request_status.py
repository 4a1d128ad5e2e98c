"""Status codes of Spot requests: the whole list of the EC2 user guide, each with its class and source.

Source: EC2 user guide, "Get the status of a Spot Instance request", section "Spot request status codes",
unless a row names another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class StatusClass(StrEnum):
    """What a status code says about the launch of a Spot instance."""

    CAPACITY = "capacity"
    PRICE = "price"
    LIMIT = "limit"
    CONFIGURATION = "configuration"
    TRANSIENT = "transient"
    """The request changes to another status by itself."""
    NOT_A_FAILURE = "not a failure"
    """The request is fulfilled, or a user, a schedule or an experiment ended it on purpose."""


@dataclass(frozen=True, slots=True)
class StatusCode:
    """A status code of a Spot request, and the section of the documentation that defines it."""

    code: str
    status_class: StatusClass
    source: str


_CODES: Final = 'EC2 user guide, "Spot request status codes"'
_STATES: Final = 'EC2 user guide, "State changes for a Spot request", section '
_EXPERIMENTS: Final = f'{_STATES}"Interruption experiments"'
_RETIRED: Final = 'EC2 user guide, earlier edition, "Spot Request Status", '

_ROWS: Final = (
    # "cannot launch all the instances you requested" in one zone, or at the same time.
    StatusCode("az-group-constraint", StatusClass.CAPACITY, _CODES),
    StatusCode("launch-group-constraint", StatusClass.CAPACITY, _CODES),
    StatusCode("instance-terminated-launch-group-constraint", StatusClass.CAPACITY, _CODES),
    StatusCode("capacity-not-available", StatusClass.CAPACITY, _CODES),
    StatusCode("instance-stopped-no-capacity", StatusClass.CAPACITY, _CODES),
    StatusCode("instance-terminated-no-capacity", StatusClass.CAPACITY, _CODES),
    StatusCode("capacity-oversubscribed", StatusClass.CAPACITY, f'{_RETIRED}"Holding"'),
    StatusCode(
        "instance-terminated-capacity-oversubscribed", StatusClass.CAPACITY, f'{_RETIRED}"Fulfilled-terminal"'
    ),
    # The request was not fulfilled before its date.
    StatusCode("schedule-expired", StatusClass.CAPACITY, _CODES),
    # "an unexpected system error" of AWS: the request is closed, another one may succeed.
    StatusCode("system-error", StatusClass.CAPACITY, _CODES),
    StatusCode("price-too-low", StatusClass.PRICE, _CODES),
    StatusCode("instance-stopped-by-price", StatusClass.PRICE, _CODES),
    StatusCode("instance-terminated-by-price", StatusClass.PRICE, _CODES),
    # Of EBS volumes: their number or total storage.
    StatusCode("limit-exceeded", StatusClass.LIMIT, _CODES),
    StatusCode("bad-parameters", StatusClass.CONFIGURATION, _CODES),
    # "constraints are not valid (for example, the Availability Zone does not exist)"
    StatusCode("constraint-not-fulfillable", StatusClass.CONFIGURATION, _CODES),
    StatusCode("not-scheduled-yet", StatusClass.TRANSIENT, _CODES),
    StatusCode("pending-evaluation", StatusClass.TRANSIENT, _CODES),
    StatusCode("pending-fulfillment", StatusClass.TRANSIENT, _CODES),
    # "can't be added to the placement group at this time"
    StatusCode("placement-group-constraint", StatusClass.TRANSIENT, _CODES),
    # A stopped or terminated code with the reason follows.
    StatusCode("marked-for-stop", StatusClass.TRANSIENT, _CODES),
    StatusCode("marked-for-termination", StatusClass.TRANSIENT, _CODES),
    StatusCode("marked-for-stop-by-experiment", StatusClass.TRANSIENT, _EXPERIMENTS),
    StatusCode("fulfilled", StatusClass.NOT_A_FAILURE, _CODES),
    StatusCode("request-canceled-and-instance-running", StatusClass.NOT_A_FAILURE, _CODES),
    StatusCode("canceled-before-fulfillment", StatusClass.NOT_A_FAILURE, _CODES),
    StatusCode("instance-stopped-by-user", StatusClass.NOT_A_FAILURE, _CODES),
    StatusCode("instance-stopped-by-experiment", StatusClass.NOT_A_FAILURE, _EXPERIMENTS),
    StatusCode("instance-terminated-by-experiment", StatusClass.NOT_A_FAILURE, _EXPERIMENTS),
    StatusCode("instance-terminated-by-schedule", StatusClass.NOT_A_FAILURE, _CODES),
    # "terminated from a stopped state"
    StatusCode("instance-terminated-by-service", StatusClass.NOT_A_FAILURE, _CODES),
    StatusCode("instance-terminated-by-user", StatusClass.NOT_A_FAILURE, _CODES),
    StatusCode("spot-instance-terminated-by-user", StatusClass.NOT_A_FAILURE, _CODES),
)

STATUS_CODES: Final = {row.code: row for row in _ROWS}

INTERRUPTION_CODES: Final = (
    "instance-terminated-no-capacity",
    "instance-terminated-by-price",
    "instance-terminated-by-experiment",
    "marked-for-termination",
    "marked-for-stop",
    "marked-for-stop-by-experiment",
)
"""Codes of a request whose instance has a two-minute notice, and still runs.

The request of an instance that ends on interruption gets ``instance-terminated-no-capacity`` at once,
not ``marked-for-termination``, and the instance runs for two minutes more. AWS FIS has a code of its own.
Source: EC2 user guide, "State changes for a Spot request", sections "Fulfilled-terminal" and "Interruption
experiments".
"""

_WORD: Final = re.compile(r"[a-z]+(?:-[a-z]+)+")


def find_status(text: str) -> StatusCode | None:
    """Return the first status code in a text, ``None`` without a known one.

    ``fulfilled`` counts only as the whole text: it also is an English word.
    """
    text = text.casefold().strip()
    if text in STATUS_CODES:
        return STATUS_CODES[text]
    return next((STATUS_CODES[word] for word in _WORD.findall(text) if word in STATUS_CODES), None)
