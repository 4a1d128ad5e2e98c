"""What asks for instances and holds them, behind one interface; an Auto Scaling group is one such holder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from moto.autoscaling.models import FakeAutoScalingGroup

from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.fixes.groups import leaving
from pulumi_on_moto.fixes.groups import members as moto_groups
from pulumi_on_moto.running.events import BusEvent, EventBus


@dataclass(frozen=True, slots=True)
class LaunchOption:
    """One thing that may be launched: a type from a launch template, in some subnets.

    Attributes:
        instance_type: the type; empty where the template or requirements decide.
        subnets: subnet ids.
        template: id and version of the launch template.
        weight: for how much an instance of it counts.
    """

    instance_type: str
    subnets: tuple[str, ...]
    template: tuple[str, str]
    weight: int = 1


class Holder(Protocol):
    """Wants ``desired`` instances; the market gives and takes them, and neither changes ``desired``.

    A Spot Fleet goes on trying, and has no lifecycle hooks: what is said of both here is a fleet's.
    """

    @property
    def name(self) -> str:
        """Physical name or id."""
        ...

    @property
    def desired(self) -> int:
        """How much it shall hold, in the unit of its options' weights."""
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
        return {}

    def join(self, instance: Any) -> None:
        """Take an instance in."""
        ...

    def lose(self, instance: Any) -> bool:
        """Find out that EC2 has ended an instance; tell whether it has left, or is kept for a hook."""
        ...

    @property
    def suspended(self) -> bool:
        """Whether it launches nothing, whatever it wants."""
        return False

    def suspend(self) -> None:
        """Have AWS suspend its launches."""
        return

    def refuse(self, message: str, status: str) -> None:
        """Note a refused launch, in AWS's words; ``status`` is that of its activity."""
        ...

    def launched(self, bus: EventBus, instance: Any, now: float) -> BusEvent:
        """Return the event of a launch: that it ended or, with a launch hook, that it waits."""
        ...

    def waits(self, bus: EventBus, instance: Any, now: float) -> BusEvent:
        """Return the event of an instance that begins to wait for a termination hook."""
        raise LocalCloudError(f"{self.name!r} has no lifecycle hooks, nobody waits for one")

    def leaving(self) -> set[str]:
        """Return the ids of those that it ends, and that wait for a termination hook."""
        return set()

    def noticed(self, instance: Any) -> None:
        """Hear that EC2 takes an instance in two minutes."""
        return

    def let_go(self, instance_id: str) -> None:
        """Complete the termination hook that an instance waits for."""
        return

    def terminated(self, bus: EventBus, instance: Any, now: float) -> BusEvent:
        """Return the event of the instance that has just gone."""
        ...

    def refused(self, bus: EventBus, message: str, now: float) -> BusEvent | None:
        """Return the event of the launch that has just been refused, None where AWS sends none."""
        ...

    def worked(self, bus: EventBus, instance: Any, now: float) -> BusEvent | None:
        """End the instance's launch hook if it waits for one: return the event of its launch then."""
        return None


@dataclass(frozen=True, slots=True)
class ScalingGroupHolder(Holder):
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
                version_of(override.get("LaunchTemplateSpecification") or default),
                int(override.get("WeightedCapacity", 1)),
            )
            for override in template.get("Overrides") or [{}]
        )

    def instances(self) -> list[Any]:
        """See ``Holder``."""
        return [state.instance for state in self.group.instance_states]

    def join(self, instance: Any) -> None:
        """See ``Holder``."""
        moto_groups.join(self.group, instance)

    def lose(self, instance: Any) -> bool:
        """See ``Holder``."""
        cause = "an EC2 health check indicating it has been terminated or stopped"
        return leaving.lose(self.group, instance, cause)

    @property
    def suspended(self) -> bool:
        """See ``Holder``."""
        return moto_groups.launches_suspended(self.group)

    def suspend(self) -> None:
        """See ``Holder``."""
        moto_groups.suspend_launches(self.group)

    def refuse(self, message: str, status: str) -> None:
        """See ``Holder``."""
        moto_groups.refuse(self.group, message, status)

    def launched(self, bus: EventBus, instance: Any, now: float) -> BusEvent:
        """See ``Holder``."""
        hook = moto_groups.launch_hook(self.group)
        if hook is not None:
            return bus.lifecycle_action("launch", self.group.arn, self.name, hook.name, instance.id, now)
        return bus.scaling("Launch Successful", self.group.arn, self._newest(), instance.id, now)

    def worked(self, bus: EventBus, instance: Any, now: float) -> BusEvent | None:
        """See ``Holder``."""
        activity = moto_groups.complete_launch(self.group, instance)
        if activity is None:
            return None
        return bus.scaling("Launch Successful", self.group.arn, activity, instance.id, now)

    def waits(self, bus: EventBus, instance: Any, now: float) -> BusEvent:
        """See ``Holder``."""
        hook = moto_groups.termination_hook(self.group).name
        state = moto_groups.member(self.group, instance.id)
        returns = state is not None and state.lifecycle_state == moto_groups.RETURNING
        outside: Literal["EC2", "WarmPool"] = "WarmPool" if returns else "EC2"
        return bus.lifecycle_action("terminate", self.group.arn, self.name, hook, instance.id, now, outside)

    def leaving(self) -> set[str]:
        """See ``Holder``."""
        states = self.group.instance_states
        return {state.instance.id for state in states if moto_groups.is_leaving(state)}

    def noticed(self, instance: Any) -> None:
        """See ``Holder``.

        With capacity rebalancing the group calls the termination hook and attempts to launch a replacement
        at once, without it does nothing before the instance has ended (Auto Scaling user guide, "Use Capacity
        Rebalancing", behavior and considerations). Without a hook it has nothing to call.
        """
        state = moto_groups.member(self.group, instance.id)
        hook = moto_groups.termination_hook(self.group)
        if state is not None and hook is not None and self.group.capacity_rebalance:
            leaving.end(self.group, state, "an EC2 instance interruption notice")

    def let_go(self, instance_id: str) -> None:
        """See ``Holder``."""
        state = moto_groups.member(self.group, instance_id)
        if state is not None and moto_groups.is_leaving(state):
            leaving.complete(self.group, state)

    def terminated(self, bus: EventBus, instance: Any, now: float) -> BusEvent:
        """See ``Holder``."""
        return bus.scaling("Terminate Successful", self.group.arn, self._newest(), instance.id, now)

    def refused(self, bus: EventBus, message: str, now: float) -> BusEvent | None:
        """See ``Holder``."""
        return bus.scaling("Launch Unsuccessful", self.group.arn, self._newest(), "", now)

    def _newest(self) -> Mapping[str, Any]:
        return moto_groups.activities(self.group)[0]


def version_of(specification: Mapping[str, Any]) -> tuple[str, str]:
    """Return id and version of the launch template that a specification names."""
    return str(specification["LaunchTemplateId"]), str(specification.get("Version") or "$Default")
