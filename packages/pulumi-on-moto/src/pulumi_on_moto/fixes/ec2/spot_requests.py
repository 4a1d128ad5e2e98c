"""Spot instance requests of a group's instances, as ``DescribeSpotInstanceRequests`` shows them."""

from __future__ import annotations

from datetime import datetime
from inspect import signature
from typing import Any, Final

from moto.core.utils import utcnow
from moto.ec2.models.spot_requests import SpotInstanceRequest
from moto.ec2.utils import random_spot_request_id

from pulumi_on_moto.fixes.speedups.cached_responses import changed

FULFILLED: Final = "fulfilled"
NO_CAPACITY: Final = "instance-terminated-no-capacity"
ENDED_BY_USER: Final = "instance-terminated-by-user"
_MESSAGES: Final = {
    FULFILLED: "Your Spot request is fulfilled.",
    NO_CAPACITY: "Your Spot instance was terminated because there is no Spot capacity available.",
    ENDED_BY_USER: "Spot Instance terminated due to user-initiated termination.",
}
"""Codes: EC2 user guide, "Spot request status"."""
_FILTERS: Final = {
    "status-code": "_status_code",
    "launched-availability-zone": "launched_availability_zone",
    "instance-id": "instance_id",
}
"""Filters that moto's class lacks."""


class GroupSpotRequest(SpotInstanceRequest):
    """The Spot request of a group's instance.

    moto's own class launches the instance itself and dates every status 2015.
    """

    def __init__(self, backend: Any, instance: Any) -> None:
        """Record a fulfilled one-time request for ``instance``."""
        self._instance = instance
        arguments: dict[str, Any] = dict.fromkeys(signature(SpotInstanceRequest).parameters)
        arguments |= {
            "ec2_backend": backend,
            "spot_request_id": random_spot_request_id(),
            "price": "",
            "image_id": instance.image_id,
            "spot_instance_type": "one-time",
            "key_name": instance.key_name,
            "security_groups": [group.id for group in instance.security_groups],
            "instance_type": instance.instance_type,
            "placement": instance.placement.zone,
            "monitoring_enabled": False,
            "subnet_id": instance.subnet_id,
            "tags": {},
        }
        super().__init__(**arguments)
        association = backend.iam_instance_profile_associations.get(instance.id)
        if association is not None:
            profile = association.iam_instance_profile
            named = {"Arn": profile.arn, "Name": profile.name}
            vars(self.launch_specification)["iam_instance_profile"] = named  # moto's class lacks it
        self._created = self._updated = utcnow()
        self.launched_availability_zone = instance.placement.zone
        self.mark(FULFILLED)
        instance.spot_instance_request_id = self.id
        instance.lifecycle = "spot"
        backend.spot_instance_requests[self.id] = self

    def launch_instance(self) -> Any:
        """Return the existing instance."""
        return self._instance

    def mark(self, code: str) -> None:
        """Set the request's status; the statuses of a terminated instance close it."""
        if code == getattr(self, "_status_code", None):
            return
        changed()
        self._status_code = code
        self.status_message = _MESSAGES[code]
        self.state = "closed" if code in (NO_CAPACITY, ENDED_BY_USER) else "active"
        self._updated = utcnow()

    @property
    def status(self) -> dict[str, Any]:
        """Code, message and time of the last update."""
        return {"Code": self._status_code, "Message": self.status_message, "UpdateTime": self._updated}

    @property
    def create_time(self) -> datetime:  # type: ignore[override]
        """Time of the request."""
        return self._created

    def get_filter_value(self, filter_name: str, method_name: str | None = None) -> Any:
        """Return the value that an API filter compares."""
        attribute = _FILTERS.get(filter_name)
        return getattr(self, attribute) if attribute else super().get_filter_value(filter_name, method_name)


def request_of(backend: Any, instance: Any) -> GroupSpotRequest | None:
    """Return the Spot request of an instance, None for On-Demand."""
    request = backend.spot_instance_requests.get(getattr(instance, "spot_instance_request_id", None))
    return request if isinstance(request, GroupSpotRequest) else None
