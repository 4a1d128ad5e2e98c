"""What asks for instances and holds them: an Auto Scaling group or a Spot Fleet, behind one interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from moto.autoscaling.models import FakeAutoScalingGroup

from lambdas.core.model import RefusalKind
from lambdas.core.refusals import classify
from pulumi_on_moto.fixes.fleets import request as moto_fleets
from pulumi_on_moto.fixes.fleets.request import FleetRequest
from pulumi_on_moto.fixes.groups import members as moto_groups
from pulumi_on_moto.running.events import BusEvent, EventBus


@dataclass(frozen=True, slots=True)
class LaunchOption:
    """One thing that may be launched: a type from a launch template, in some subnets.

    Attributes:
        instance_type: the type; empty where the template or requirements decide.
        subnets: subnet ids.
        template: id and version of the launch template.
    """

    instance_type: str
    subnets: tuple[str, ...]
    template: tuple[str, str]


class Holder(Protocol):
    """Wants ``desired`` instances; the market gives and takes them, and neither changes ``desired``."""

    @property
    def name(self) -> str:
        """Physical name or id."""
        ...

    @property
    def desired(self) -> int:
        """How many instances it shall hold."""
        ...

    @property
    def options(self) -> tuple[LaunchOption, ...]:
        """What it may launch, in order of preference."""
        ...

    def instances(self) -> list[Any]:
        """Return moto's instances that it holds."""
        ...

    def tags(self) -> Mapping[str, str]:
        """Return the tags that an instance gets from its launch on."""
        ...

    def join(self, instance: Any) -> None:
        """Take an instance in."""
        ...

    def leave(self, instance: Any, cause: str) -> None:
        """Let an instance go."""
        ...

    def refuse(self, message: str) -> None:
        """Note a refused launch, in AWS's words."""
        ...

    def launched(self, bus: EventBus, instance: Any, now: float) -> BusEvent:
        """Return the event of a launch: that it ended or, with a launch hook, that it waits."""
        ...

    def terminated(self, bus: EventBus, instance: Any, now: float) -> BusEvent:
        """Return the event of the instance that has just gone."""
        ...

    def refused(self, bus: EventBus, message: str, now: float) -> BusEvent | None:
        """Return the event of the launch that has just been refused, None where AWS sends none."""
        ...

    def worked(self, bus: EventBus, instance: Any, now: float) -> BusEvent | None:
        """End the instance's launch hook if it waits for one: return the event of its launch then."""
        ...


@dataclass(frozen=True, slots=True)
class ScalingGroupHolder:
    """See ``Holder``."""

    group: FakeAutoScalingGroup

    @property
    def name(self) -> str:
        """See ``Holder``."""
        return str(self.group.name)

    @property
    def desired(self) -> int:
        """See ``Holder``."""
        return int(self.group.desired_capacity or 0)

    @property
    def options(self) -> tuple[LaunchOption, ...]:
        """See ``Holder``."""
        policy: Mapping[str, Any] = self.group.mixed_instances_policy or {}
        template = policy.get("LaunchTemplate", {})
        default = template.get("LaunchTemplateSpecification") or self.group.launch_template or {}
        subnets = tuple((self.group.vpc_zone_identifier or "").split(","))
        return tuple(
            LaunchOption(
                override.get("InstanceType", ""),
                subnets,
                _version(override.get("LaunchTemplateSpecification") or default),
            )
            for override in template.get("Overrides") or [{}]
        )

    def instances(self) -> list[Any]:
        """See ``Holder``."""
        return [state.instance for state in self.group.instance_states]

    def tags(self) -> Mapping[str, str]:
        """See ``Holder``: Auto Scaling's own are set when the instance joins."""
        return {}

    def join(self, instance: Any) -> None:
        """See ``Holder``."""
        moto_groups.join(self.group, instance)

    def leave(self, instance: Any, cause: str) -> None:
        """See ``Holder``."""
        moto_groups.leave(self.group, instance, cause)

    def refuse(self, message: str) -> None:
        """See ``Holder``."""
        moto_groups.refuse(self.group, message)

    def launched(self, bus: EventBus, instance: Any, now: float) -> BusEvent:
        """See ``Holder``."""
        hook = moto_groups.launch_hook(self.group)
        if hook is not None:
            return bus.launch_hook(self.group.arn, self.name, hook.name, instance.id, now)
        return bus.scaling("Launch Successful", self.group.arn, self._newest(), instance.id, now)

    def worked(self, bus: EventBus, instance: Any, now: float) -> BusEvent | None:
        """See ``Holder``."""
        activity = moto_groups.complete_launch(self.group, instance)
        if activity is None:
            return None
        return bus.scaling("Launch Successful", self.group.arn, activity, instance.id, now)

    def terminated(self, bus: EventBus, instance: Any, now: float) -> BusEvent:
        """See ``Holder``."""
        return bus.scaling("Terminate Successful", self.group.arn, self._newest(), instance.id, now)

    def refused(self, bus: EventBus, message: str, now: float) -> BusEvent | None:
        """See ``Holder``."""
        return bus.scaling("Launch Unsuccessful", self.group.arn, self._newest(), "", now)

    def _newest(self) -> Mapping[str, Any]:
        return moto_groups.activities(self.group)[0]


_ERRORS: Final = {
    RefusalKind.LIMIT: "spotInstanceCountLimitExceeded",
    RefusalKind.PERMISSION: "iamFleetRoleInvalid",
    RefusalKind.CONFIGURATION: "allLaunchSpecsTemporarilyBlacklisted",
}
"""The error sub-types of a fleet. A lack of capacity is none of them: the fleet stays below its target."""


@dataclass(frozen=True, slots=True)
class SpotFleetHolder:
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
                _version(template["LaunchTemplateSpecification"]),
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

    def leave(self, instance: Any, cause: str) -> None:
        """See ``Holder``."""
        self.fleet.leave(instance)

    def refuse(self, message: str) -> None:
        """See ``Holder``."""
        subtype = _ERRORS.get(classify(message))
        if subtype is not None:
            self.fleet.record("error", subtype, message)

    def launched(self, bus: EventBus, instance: Any, now: float) -> BusEvent:
        """See ``Holder``."""
        return self._change(bus, "launched", instance, now)

    def terminated(self, bus: EventBus, instance: Any, now: float) -> BusEvent:
        """See ``Holder``."""
        return self._change(bus, "terminated", instance, now)

    def refused(self, bus: EventBus, message: str, now: float) -> BusEvent | None:
        """See ``Holder``."""
        subtype = _ERRORS.get(classify(message))
        if subtype is None:
            return None
        return bus.fleet("Error", self.name, {"description": message, "sub-type": subtype}, now)

    def worked(self, bus: EventBus, instance: Any, now: float) -> BusEvent | None:
        """See ``Holder``: a fleet has no lifecycle hooks."""
        return None

    def _change(self, bus: EventBus, subtype: str, instance: Any, now: float) -> BusEvent:
        description = moto_fleets.describe(instance)
        detail = {"instance-id": instance.id, "description": description, "sub-type": subtype}
        return bus.fleet("Instance Change", self.fleet.id, detail, now)


def _version(specification: Mapping[str, Any]) -> tuple[str, str]:
    return str(specification["LaunchTemplateId"]), str(specification.get("Version") or "$Default")
