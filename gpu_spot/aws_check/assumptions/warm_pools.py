"""Warm pools."""

from __future__ import annotations

from typing import Final

from gpu_spot.aws_check.assumption import Assumption
from gpu_spot.aws_check.lab import Falsified, Lab

_GUIDE: Final = 'Auto Scaling guide, "Warm pools for applications with long boot times"'


def _warmed(lab: Lab, what: str) -> tuple[str, str]:
    """Return a group with a pool of one, and the instance once it stands by."""
    group, client = lab.group(what, NewInstancesProtectedFromScaleIn=True), lab.clients("autoscaling")
    client.put_warm_pool(
        AutoScalingGroupName=group, MinSize=1, MaxGroupPreparedCapacity=1, PoolState="Stopped"
    )

    def stopped() -> str | None:
        instances = client.describe_warm_pool(AutoScalingGroupName=group)["Instances"]
        return next(
            (one["InstanceId"] for one in instances if one["LifecycleState"] == "Warmed:Stopped"), None
        )

    return group, lab.until(stopped, "Warmed:Stopped", 600)


def _stopped(lab: Lab) -> str:
    group, instance = _warmed(lab, "warm")
    if instance in lab.states(group):
        raise Falsified(f"the group lists it as {lab.states(group)[instance]}")
    if lab.described(group)["DesiredCapacity"]:
        raise Falsified("it counts towards the desired capacity")
    return "Warmed:Stopped, no member, desired 0"


def _taken(lab: Lab) -> str:
    group, instance = _warmed(lab, "warm-start")
    started = lab.clock.now()
    served = lab.serving(group, 1)
    if served != [instance]:
        raise Falsified(f"{served} serves, not the warm {instance}")
    return f"it served {lab.clock.now() - started:.0f} s after it was asked for"


def _protected(lab: Lab) -> str:
    group, _ = _warmed(lab, "warm-protected")
    return lab.serving_protected(group)


def _twice(lab: Lab) -> str:
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


ASSUMPTIONS: Final = (
    Assumption(
        "warm-instances-stand-apart",
        "Warm instances show as Warmed:Stopped and are no members of the group.",
        _GUIDE,
        "lambdas/aws/auto_scaling.py",
        "they are listed as members, or count",
        _stopped,
        instances=1,
    ),
    Assumption(
        "warm-start",
        "A group takes its warm instance before it launches another.",
        _GUIDE,
        "lambdas/core/warm_pool.py",
        "another serves",
        _taken,
        instances=2,
    ),
    Assumption(
        "warm-instances-inherit-protection",
        "An instance out of the pool has the group's protection from scale-in.",
        'Auto Scaling guide, "Use instance scale-in protection"',
        "infra/components/capacity/capacity_group.py",
        "it is not protected",
        _protected,
        instances=2,
    ),
    Assumption(
        "hooks-fire-twice",
        "Launch hooks hold an instance on its way into the pool, and again out of it.",
        _GUIDE,
        "userdata/agent/aws/hooks.py",
        "one of the waits does not come",
        _twice,
        instances=2,
        unplayable="hooks do not hold on the way into the pool",
    ),
)
