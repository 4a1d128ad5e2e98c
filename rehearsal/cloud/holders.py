"""An Auto Scaling group as a holder of instances; a Spot Fleet has the same methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from moto.autoscaling.models import FakeAutoScalingGroup

from pulumi_on_moto.fixes.groups import leaving
from pulumi_on_moto.fixes.groups import members as moto_groups
from pulumi_on_moto.running.events import BusEvent, EventBus


@dataclass(frozen=True, slots=True)
class LaunchOption:
    """A launch option: an instance type of a launch template, in some subnets.

    Attributes:
        instance_type: the type; empty if the template or requirements decide.
        subnets: subnet ids.
        template: id and version of the launch template.
        weight: capacity units of one instance.
    """

    instance_type: str
    subnets: tuple[str, ...]
    template: tuple[str, str]
    weight: int = 1


@dataclass(frozen=True, slots=True)
class ScalingGroupHolder:
    """An Auto Scaling group; launches and interruptions do not change ``desired``."""

    group: FakeAutoScalingGroup

    @property
    def name(self) -> str:
        """Physical name."""
        return str(self.group.name)

    @property
    def desired(self) -> int:
        """Desired capacity, in the unit of the options' weights."""
        return int(self.group.desired_capacity or 0)

    @property
    def options(self) -> tuple[LaunchOption, ...]:
        """Launch options, in order of preference."""
        policy: Mapping[str, Any] = self.group.mixed_instances_policy or {}
        template = policy.get("LaunchTemplate", {})
        default = template.get("LaunchTemplateSpecification") or self.group.launch_template or {}
        subnets = tuple((self.group.vpc_zone_identifier or "").split(","))
        return tuple(
            LaunchOption(
                override.get("InstanceType", ""),
                subnets,
                version_of(override.get("LaunchTemplateSpecification") or default),
                int(override.get("WeightedCapacity", 1)),
            )
            for override in template.get("Overrides") or [{}]
        )

    def instances(self) -> list[Any]:
        """Return the moto instances of the group."""
        return [state.instance for state in self.group.instance_states]

    def tags(self) -> Mapping[str, str]:
        """Return the tags that AWS adds to its instances at launch."""
        return {}

    def join(self, instance: Any) -> None:
        """Add an instance."""
        moto_groups.join(self.group, instance)

    def lose(self, instance: Any) -> bool:
        """Process a termination by EC2; return whether the instance has left (not if it waits for a hook)."""
        cause = "an EC2 health check indicating it has been terminated or stopped"
        return leaving.lose(self.group, instance, cause)

    @property
    def suspended(self) -> bool:
        """Whether its launch process is suspended."""
        return moto_groups.launches_suspended(self.group)

    def suspend(self) -> None:
        """Suspend its launch process, as AWS does."""
        moto_groups.suspend_launches(self.group)

    def refuse(self, message: str) -> None:
        """Record a failed launch with AWS's message."""
        moto_groups.refuse(self.group, message)

    def launched(self, bus: EventBus, instance: Any, now: float) -> BusEvent:
        """Return the event of a launch: success or, with a launch hook, the lifecycle action."""
        hook = moto_groups.launch_hook(self.group)
        if hook is not None:
            return bus.lifecycle_action("launch", self.group.arn, self.name, hook.name, instance.id, now)
        return bus.scaling("Launch Successful", self.group.arn, self._newest(), instance.id, now)

    def worked(self, bus: EventBus, instance: Any, now: float) -> BusEvent | None:
        """Complete the launch hook of an instance that waits for one; return its launch event."""
        activity = moto_groups.complete_launch(self.group, instance)
        if activity is None:
            return None
        return bus.scaling("Launch Successful", self.group.arn, activity, instance.id, now)

    def waits(self, bus: EventBus, instance: Any, now: float) -> BusEvent:
        """Return the event of an instance that starts to wait for a termination hook."""
        hook = moto_groups.termination_hook(self.group).name
        state = moto_groups.member(self.group, instance.id)
        returns = state is not None and state.lifecycle_state == moto_groups.RETURNING
        outside: Literal["EC2", "WarmPool"] = "WarmPool" if returns else "EC2"
        return bus.lifecycle_action("terminate", self.group.arn, self.name, hook, instance.id, now, outside)

    def leaving(self) -> set[str]:
        """Return the ids of instances that wait for a termination hook."""
        states = self.group.instance_states
        return {state.instance.id for state in states if moto_groups.is_leaving(state)}

    def noticed(self, instance: Any) -> None:
        """Process the two-minute interruption notice of an instance.

        With capacity rebalancing the group calls the termination hook and launches a replacement at once;
        without it the group does nothing before the instance is terminated (Auto Scaling user guide, "Use
        Capacity Rebalancing", behavior and considerations). Without a hook there is nothing to do.
        """
        state = moto_groups.member(self.group, instance.id)
        hook = moto_groups.termination_hook(self.group)
        if state is not None and hook is not None and self.group.capacity_rebalance:
            leaving.end(self.group, state, "an EC2 instance interruption notice")

    def let_go(self, instance_id: str) -> None:
        """Complete the termination hook of an instance."""
        state = moto_groups.member(self.group, instance_id)
        if state is not None and moto_groups.is_leaving(state):
            leaving.complete(self.group, state)

    def terminated(self, bus: EventBus, instance: Any, now: float) -> BusEvent:
        """Return the event of the termination that has just happened."""
        return bus.scaling("Terminate Successful", self.group.arn, self._newest(), instance.id, now)

    def refused(self, bus: EventBus, message: str, now: float) -> BusEvent:
        """Return the event of the launch failure that has just happened."""
        return bus.scaling("Launch Unsuccessful", self.group.arn, self._newest(), "", now)

    def _newest(self) -> Mapping[str, Any]:
        return moto_groups.activities(self.group)[0]


def version_of(specification: Mapping[str, Any]) -> tuple[str, str]:
    """Return id and version of the launch template that a specification names."""
    return str(specification["LaunchTemplateId"]), str(specification.get("Version") or "$Default")
