"""Parsers of the EventBridge events that trigger the controller, one for each detail-type.

An event sets a termination deadline or a mark before the next observation does, or only triggers a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, Final, TypeAlias

from contracts.limits import NOTICE_SECONDS


class MalformedEventError(ValueError):
    """A payload that does not match its detail-type; a retry cannot succeed."""


@dataclass(frozen=True, slots=True)
class _OfInstance:
    instance_id: str

    @property
    def instance_ids(self) -> tuple[str, ...]:
        """The instance."""
        return (self.instance_id,)


@dataclass(frozen=True, slots=True)
class InterruptionNotice(_OfInstance):
    """AWS interrupts the Spot Instance at ``deadline``."""

    deadline: float


@dataclass(frozen=True, slots=True)
class RebalanceRecommendation(_OfInstance):
    """The Spot Instance is at elevated risk of interruption."""


@dataclass(frozen=True, slots=True)
class ScheduledChange:
    """AWS stops, reboots or retires these instances at or soon after ``deadline``; announced days ahead."""

    instance_ids: tuple[str, ...]
    deadline: float


@dataclass(frozen=True, slots=True)
class WakeUp:
    """An event that only triggers a run of the controller."""

    detail_type: str
    instance_ids: ClassVar[tuple[str, ...]] = ()


Event: TypeAlias = InterruptionNotice | RebalanceRecommendation | ScheduledChange | WakeUp


def parse(payload: Mapping[str, Any]) -> Event:
    """Parse an EventBridge payload; raise ``MalformedEventError`` with the invalid field."""
    detail_type = _text(payload, "detail-type")
    return _PARSERS.get(detail_type, _wake)(payload)


def _interruption(payload: Mapping[str, Any]) -> Event:
    # {"detail-type": "EC2 Spot Instance Interruption Warning", "source": "aws.ec2",
    #  "time": "2026-01-01T00:00:00Z", "detail": {"instance-id": "i-…", "instance-action": "terminate"}}
    return InterruptionNotice(_instance_id(payload), _time(payload) + NOTICE_SECONDS)


def _rebalance(payload: Mapping[str, Any]) -> Event:
    # {"detail-type": "EC2 Instance Rebalance Recommendation", "detail": {"instance-id": "i-…"}}
    return RebalanceRecommendation(_instance_id(payload))


def _health(payload: Mapping[str, Any]) -> Event:
    # {"detail-type": "AWS Health Event", "source": "aws.health", "detail": {"service": "EC2",
    #  "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED", "eventTypeCategory": "scheduledChange",
    #  "startTime": "Sat, 24 Jan 1970 03:33:20 GMT", "statusCode": "upcoming",
    #  "affectedEntities": [{"entityValue": "i-…"}]}}
    # Source: AWS Health user guide, "Reference: AWS Health events Amazon EventBridge schema".
    detail = _detail(payload)
    if detail.get("eventTypeCategory") != "scheduledChange" or detail.get("statusCode") == "closed":
        return _wake(payload)
    entities = detail.get("affectedEntities", [])
    if not isinstance(entities, list) or not all(isinstance(entity, Mapping) for entity in entities):
        raise MalformedEventError(
            f"event field 'affectedEntities' must be a list of objects, not {entities!r:.80}"
        )
    values = (_text(entity, "entityValue") for entity in entities)
    return ScheduledChange(tuple(value for value in values if value.startswith("i-")), _start_time(detail))


def _wake(payload: Mapping[str, Any]) -> Event:
    return WakeUp(_text(payload, "detail-type"))


_PARSERS: Final[dict[str, Callable[[Mapping[str, Any]], Event]]] = {
    "EC2 Spot Instance Interruption Warning": _interruption,
    "EC2 Instance Rebalance Recommendation": _rebalance,
    "AWS Health Event": _health,
}


def _text(payload: Mapping[str, Any], key: str) -> str:
    value = payload.get(key)
    if not isinstance(value, str) or not value:
        raise MalformedEventError(f"event field {key!r} must be a non-empty string, not {value!r}")
    return value


def _detail(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    detail = payload.get("detail")
    if not isinstance(detail, Mapping):
        raise MalformedEventError(f"event field 'detail' must be an object, not {detail!r:.80}")
    return detail


def _instance_id(payload: Mapping[str, Any]) -> str:
    return _text(_detail(payload), "instance-id")


def _start_time(detail: Mapping[str, Any]) -> float:
    text = _text(detail, "startTime")
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        message = f"event field 'startTime' must be a time as in e-mail (RFC 5322), not {text!r:.80}"
        raise MalformedEventError(message) from None


def _time(payload: Mapping[str, Any]) -> float:
    text = _text(payload, "time")
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise MalformedEventError(f"event field 'time' must be an ISO 8601 time, not {text!r}") from None
