"""Spot requests of a group, by state and status code, as ``describe-spot-instance-requests`` shows them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lambdas.core.spot_request_status import INTERRUPTION_CODES, STATUS_CODES, StatusClass

RECENT_SECONDS: Final = 3600.0
"""Age of the last change of an ended request that is still counted. AWS lists ended requests for four hours.

Source: EC2 API reference, ``DescribeSpotInstanceRequests``.
"""
_ENDED_STATES: Final = frozenset({"cancelled", "closed", "failed"})
_MEANINGS: Final = {
    StatusClass.CAPACITY: "no capacity",
    StatusClass.PRICE: "over maxPrice",
    StatusClass.LIMIT: "account limit",
    StatusClass.CONFIGURATION: "invalid request",
    StatusClass.TRANSIENT: "temporary",
    StatusClass.NOT_A_FAILURE: "no failure",
}


@dataclass(frozen=True, slots=True)
class SpotRequestCount:
    """Number of a group's Spot requests with a state and a status code.

    ``updated_at`` is the newest update of a status (epoch seconds).
    """

    state: str
    code: str
    count: int
    updated_at: float

    @property
    def status_class(self) -> StatusClass | None:
        """What the code says about launches; ``None`` for an unknown code."""
        status = STATUS_CODES.get(self.code)
        return None if status is None else status.status_class

    @property
    def meaning(self) -> str:
        """The class in words."""
        if self.status_class is None:
            return "unknown code"
        if self.status_class is StatusClass.TRANSIENT and self.code in INTERRUPTION_CODES:
            return "interruption"
        return _MEANINGS[self.status_class]


def read_requests(ec2: Any) -> Iterator[Mapping[str, Any]]:
    """Yield all Spot requests of the region; one call per 1,000."""
    pages = ec2.get_paginator("describe_spot_instance_requests").paginate(PaginationConfig={"PageSize": 1000})
    return (request for page in pages for request in page["SpotInstanceRequests"])


def count_requests(
    requests: Iterable[Mapping[str, Any]], stack: str, group: str, instances: Collection[str], now: float
) -> tuple[SpotRequestCount, ...]:
    """Return the counts of a group's requests, the newest first: the current ones, and the recently ended.

    A request is a group's if it launched one of its ``instances`` or names the group's instance profile.
    AWS documents no tag of the Auto Scaling group or the fleet on it. A tag from the launch template would
    fail On-Demand launches, which have no Spot request.
    Source: EC2 API reference, ``LaunchTemplateTagSpecificationRequest``.
    """
    profile = re.compile(
        rf"(?:.*/)?gpu-spot-{re.escape(stack)}-{re.escape(group)}-instance(?:-[0-9a-f]{{7}})?"
    )
    updates: dict[tuple[str, str], list[float]] = {}
    for request in requests:
        is_of_group = request.get("InstanceId") in instances or profile.fullmatch(_profile(request))
        status = request.get("Status", {})
        updated_at = status.get("UpdateTime", request["CreateTime"]).timestamp()
        if is_of_group and (request["State"] not in _ENDED_STATES or updated_at >= now - RECENT_SECONDS):
            key = request["State"], status.get("Code", "no code")
            updates.setdefault(key, []).append(updated_at)
    counts = (SpotRequestCount(*key, len(times), max(times)) for key, times in updates.items())
    return tuple(sorted(counts, key=lambda count: (-count.updated_at, count.code, count.state)))


def _profile(request: Mapping[str, Any]) -> str:
    """Return the ARN or name of the instance profile of a request, empty if it is not shown."""
    profile = request.get("LaunchSpecification", {}).get("IamInstanceProfile", {})
    return profile.get("Arn") or profile.get("Name") or ""
