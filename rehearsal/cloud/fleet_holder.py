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
from rehearsal.cloud.holders import Holder, LaunchOption, version_of

_ERRORS: Final = {
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
class SpotFleetHolder(Holder):
    """See ``Holder``."""

    fleet: FleetRequest

    @property
    def name(self) -> str:
        """See ``Holder``."""
        return self.fleet.id

    @property
    def desired(self) -> int:
        """See ``Holder``."""
        return self.fleet.target

    @property
    def options(self) -> tuple[LaunchOption, ...]:
        """See ``Holder``: an override may name several subnets, separated by commas."""
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
        """See ``Holder``."""
        return list(self.fleet.members.values())

    def tags(self) -> Mapping[str, str]:
        """See ``Holder``."""
        return {moto_fleets.FLEET_TAG: self.fleet.id}

    def join(self, instance: Any) -> None:
        """See ``Holder``."""
        self.fleet.join(instance)

    def lose(self, instance: Any) -> bool:
        """See ``Holder``: a fleet has no lifecycle hooks."""
        self.fleet.leave(instance)
        return True

    def refuse(self, message: str) -> None:
        """See ``Holder``: a fleet has no activities."""
        error = self._error(message)
        self.fleet.record("error", error["sub-type"], error["description"])

    def launched(self, bus: EventBus, instance: Any, now: float) -> BusEvent:
        """See ``Holder``."""
        return self._change(bus, "launched", instance, now)

    def terminated(self, bus: EventBus, instance: Any, now: float) -> BusEvent:
        """See ``Holder``."""
        return self._change(bus, "terminated", instance, now)

    def refused(self, bus: EventBus, message: str, now: float) -> BusEvent:
        """See ``Holder``."""
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
