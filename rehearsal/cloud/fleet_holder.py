"""A Spot Fleet as a holder of instances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lambdas.core.launch_failures import classify
from lambdas.core.model import LaunchFailureKind
from pulumi_on_moto.fixes.fleets import request as moto_fleets
from pulumi_on_moto.fixes.fleets.request import FleetRequest
from pulumi_on_moto.running.events import BusEvent, EventBus
from rehearsal.cloud.holders import LaunchOption, version_of

_ERRORS: Final = {
    LaunchFailureKind.SPOT_LIMIT: "spotInstanceCountLimitExceeded",
    LaunchFailureKind.LIMIT: "spotInstanceCountLimitExceeded",
    LaunchFailureKind.PERMISSION: "iamFleetRoleInvalid",
    LaunchFailureKind.CONFIGURATION: "allLaunchSpecsTemporarilyBlacklisted",
    LaunchFailureKind.UNKNOWN: "allLaunchSpecsTemporarilyBlacklisted",
}
"""The error sub-types of a fleet (botocore, ``EventInformation``)."""
_SHORTAGE: Final = (
    "spotFleetRequestConfigurationInvalid",
    "There is no Spot capacity available that matches your request.",
)
"""Error of a fleet without Spot capacity. Source: terraform-provider-aws#26493."""


@dataclass(frozen=True, slots=True)
class SpotFleetHolder:
    """See ``ScalingGroupHolder``; a fleet keeps retrying, and has neither lifecycle hooks nor activities."""

    fleet: FleetRequest

    @property
    def name(self) -> str:
        """See ``ScalingGroupHolder``."""
        return self.fleet.id

    @property
    def desired(self) -> int:
        """See ``ScalingGroupHolder``."""
        return self.fleet.target

    @property
    def options(self) -> tuple[LaunchOption, ...]:
        """See ``ScalingGroupHolder``: an override may name several subnets, separated by commas."""
        return tuple(
            LaunchOption(
                override.get("InstanceType", ""),
                tuple(part.strip() for part in str(override.get("SubnetId", "")).split(",")),
                version_of(template["LaunchTemplateSpecification"]),
                int(override.get("WeightedCapacity", 1)),
            )
            for template in self.fleet.config["LaunchTemplateConfigs"]
            for override in template.get("Overrides") or [{}]
        )

    def instances(self) -> list[Any]:
        """See ``ScalingGroupHolder``."""
        return list(self.fleet.members.values())

    def tags(self) -> Mapping[str, str]:
        """See ``ScalingGroupHolder``."""
        return {moto_fleets.FLEET_TAG: self.fleet.id}

    def join(self, instance: Any) -> None:
        """See ``ScalingGroupHolder``."""
        self.fleet.join(instance)

    def lose(self, instance: Any) -> bool:
        """See ``ScalingGroupHolder``."""
        self.fleet.leave(instance)
        return True

    suspended = False

    def suspend(self) -> None:
        """See ``ScalingGroupHolder``."""

    def leaving(self) -> set[str]:
        """See ``ScalingGroupHolder``."""
        return set()

    def noticed(self, instance: Any) -> None:
        """See ``ScalingGroupHolder``."""

    def let_go(self, instance_id: str) -> None:
        """See ``ScalingGroupHolder``."""

    def worked(self, bus: EventBus, instance: Any, now: float) -> None:
        """See ``ScalingGroupHolder``."""

    def refuse(self, message: str) -> None:
        """See ``ScalingGroupHolder``."""
        error = self._error(message)
        self.fleet.record("error", error["sub-type"], error["description"])

    def launched(self, bus: EventBus, instance: Any, now: float) -> BusEvent:
        """See ``ScalingGroupHolder``."""
        return self._change(bus, "launched", instance, now)

    def terminated(self, bus: EventBus, instance: Any, now: float) -> BusEvent:
        """See ``ScalingGroupHolder``."""
        return self._change(bus, "terminated", instance, now)

    def refused(self, bus: EventBus, message: str, now: float) -> BusEvent:
        """See ``ScalingGroupHolder``."""
        return bus.fleet("Error", self.name, self._error(message), now)

    def _change(self, bus: EventBus, subtype: str, instance: Any, now: float) -> BusEvent:
        description = moto_fleets.describe(instance)
        detail = {"instance-id": instance.id, "description": description, "sub-type": subtype}
        return bus.fleet("Instance Change", self.fleet.id, detail, now)

    def _error(self, message: str) -> dict[str, str]:
        """Return the detail of the error event for a launch failure."""
        kind = classify(message)
        if kind is not LaunchFailureKind.CAPACITY:
            return {"description": message, "sub-type": _ERRORS[kind]}
        subtype, text = _SHORTAGE
        return {"description": f"{self.options[0].instance_type}, Linux/UNIX: {text}", "sub-type": subtype}
