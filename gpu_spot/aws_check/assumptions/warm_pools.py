"""Warm pools."""

from __future__ import annotations

from typing import Any, Final

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.lab import Falsified, Lab

_GUIDE: Final = 'Auto Scaling guide, "Warm pools for applications with long boot times"'
_REUSE: Final[dict[str, Any]] = {"InstanceReusePolicy": {"ReuseOnScaleIn": True}}
_LONG: Final = 120.0
"""Seconds in which a group that wants another launches it."""


def _warmed(lab: Lab, what: str, size: int = 1, **given: Any) -> tuple[str, list[str]]:
    """Return a group that has so many with its pool, and the instances once they stand by."""
    group = lab.group(what, NewInstancesProtectedFromScaleIn=True)
    lab.clients("autoscaling").put_warm_pool(
        AutoScalingGroupName=group, MinSize=0, MaxGroupPreparedCapacity=size, PoolState="Stopped", **given
    )
    return group, lab.until(lambda: _waiting(lab, group, size), f"{size} Warmed:Stopped", 600)


def _waiting(lab: Lab, group: str, count: int) -> list[str] | None:
    """Return who stands by, None unless that are so many."""
    instances = lab.clients("autoscaling").describe_warm_pool(AutoScalingGroupName=group)["Instances"]
    found = [one["InstanceId"] for one in instances if one["LifecycleState"] == "Warmed:Stopped"]
    return found if len(found) == count else None


@assumes(_GUIDE, "lambdas/aws/capacity/auto_scaling.py", "they are listed as members, or count", instances=1)
def warm_instances_stand_apart(lab: Lab) -> str:
    """Warm instances show as Warmed:Stopped and are no members of the group."""
    group, [instance] = _warmed(lab, "warm")
    if instance in lab.states(group):
        raise Falsified(f"the group lists it as {lab.states(group)[instance]}")
    lab.desires(group, 0)
    return "Warmed:Stopped, no member, desired 0"


@assumes(_GUIDE, "contracts/group/warm_pool.py", "another serves", instances=2)
def warm_start(lab: Lab) -> str:
    """A group takes its warm instance before it launches another."""
    group, [instance] = _warmed(lab, "warm-start")
    started = lab.clock.now()
    served = lab.serving(group, 1)
    if served != [instance]:
        raise Falsified(f"{served} serves, not the warm {instance}")
    return f"it served {lab.clock.now() - started:.0f} s after it was asked for"


@assumes(
    'Auto Scaling guide, "Use instance scale-in protection"',
    "infra/components/capacity/capacity_group.py",
    "it is not protected",
    instances=2,
)
def warm_instances_inherit_protection(lab: Lab) -> str:
    """An instance out of the pool has the group's protection from scale-in."""
    group, _ = _warmed(lab, "warm-protected")
    return lab.serving_protected(group)


@assumes("PutWarmPool", "infra/components/capacity/capacity_group.py", "another is prepared", instances=2)
def pool_and_group_together(lab: Lab) -> str:
    """Without a minimum pool and group share MaxGroupPreparedCapacity: who serves counts in it."""
    group, _ = _warmed(lab, "warm-together")
    lab.serving(group, 1)
    lab.clock.sleep(_LONG)
    found = lab.clients("autoscaling").describe_warm_pool(AutoScalingGroupName=group)["Instances"]
    if found:
        raise Falsified(f"{len(found)} in the pool while one serves")
    return f"nobody was prepared in {_LONG:.0f} s"


@assumes(
    f"{_GUIDE}, core concepts",
    "lambdas/aws/capacity/auto_scaling.py",
    "it is ended, or another goes",
    instances=2,
)
def scale_in_returns(lab: Lab) -> str:
    """With a reuse policy a scale-in stops the one that is not protected and puts it into the pool."""
    group, waiting = _warmed(lab, "warm-return", 2, **_REUSE)
    lab.serving(group, 2)
    gone, client, asked = waiting[0], lab.clients("autoscaling"), lab.clock.now()
    client.set_instance_protection(AutoScalingGroupName=group, InstanceIds=[gone], ProtectedFromScaleIn=False)
    client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    found = lab.until(lambda: _waiting(lab, group, 1), "one returns to the pool", 600)
    if found != [gone]:
        raise Falsified(f"{found} returned, not {gone}")
    return f"the one that was not protected stood by {lab.clock.now() - asked:.0f} s later"


@assumes(
    "TerminateInstanceInAutoScalingGroup",
    "lambdas/aws/capacity/auto_scaling.py",
    "it is stopped",
    instances=1,
)
def termination_does_not_return(lab: Lab) -> str:
    """TerminateInstanceInAutoScalingGroup ends an instance also where a scale-in would return it."""
    group, [instance] = _warmed(lab, "warm-end", 1, **_REUSE)
    lab.serving(group, 1)
    lab.clients("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=instance, ShouldDecrementDesiredCapacity=True
    )

    def state() -> str | None:
        [found] = lab.clients("ec2").describe_instances(InstanceIds=[instance])["Reservations"][0][
            "Instances"
        ]
        name = str(found["State"]["Name"])
        return name if name in ("stopped", "terminated") else None

    if (ended := lab.until(state, "it ends", 600)) != "terminated":
        raise Falsified(f"it is {ended}")
    return "terminated"


@assumes(
    _GUIDE,
    "userdata/agent/aws/hooks.py",
    "one of the waits does not come",
    instances=2,
    unplayable="hooks do not hold on the way into the pool",
)
def hooks_fire_twice(lab: Lab) -> str:
    """Launch hooks hold an instance on its way into the pool, and again out of it."""
    group, client = lab.group("hooked-pool"), lab.clients("autoscaling")
    client.put_lifecycle_hook(
        AutoScalingGroupName=group,
        LifecycleHookName="check",
        LifecycleTransition="autoscaling:EC2_INSTANCE_LAUNCHING",
        HeartbeatTimeout=30,
        DefaultResult="CONTINUE",
    )
    client.put_warm_pool(
        AutoScalingGroupName=group, MinSize=1, MaxGroupPreparedCapacity=1, PoolState="Stopped"
    )

    def in_pool(state: str) -> bool:
        instances = client.describe_warm_pool(AutoScalingGroupName=group)["Instances"]
        return any(one["LifecycleState"] == state for one in instances)

    lab.until(lambda: in_pool("Warmed:Pending:Wait"), "Warmed:Pending:Wait")
    lab.until(lambda: in_pool("Warmed:Stopped"), "Warmed:Stopped", 600)
    client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    lab.until(lambda: "Pending:Wait" in lab.states(group).values(), "Pending:Wait")
    return "Warmed:Pending:Wait, later Pending:Wait"
