"""Warm pools."""

from __future__ import annotations

from typing import Any, Final

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.aws_test_bed import AwsTestBed, Falsified

_GUIDE: Final = 'Auto Scaling guide, "Warm pools for applications with long boot times"'
_REUSE: Final[dict[str, Any]] = {"InstanceReusePolicy": {"ReuseOnScaleIn": True}}
_LAUNCH_SECONDS: Final = 120.0
"""Seconds within which a group launches a missing instance."""


def _create_warm_pool(
    test_bed: AwsTestBed, suffix: str, size: int = 1, **options: Any
) -> tuple[str, list[str]]:
    """Return a group with a warm pool of this size, and its instances once they are stopped."""
    group = test_bed.group(suffix, NewInstancesProtectedFromScaleIn=True)
    test_bed.clients("autoscaling").put_warm_pool(
        AutoScalingGroupName=group, MinSize=0, MaxGroupPreparedCapacity=size, PoolState="Stopped", **options
    )
    return group, test_bed.wait_until(
        lambda: _stopped_instances(test_bed, group, size), f"{size} Warmed:Stopped", 600
    )


def _stopped_instances(test_bed: AwsTestBed, group: str, count: int) -> list[str] | None:
    """Return the stopped instances of a warm pool, None unless there are ``count``."""
    instances = test_bed.clients("autoscaling").describe_warm_pool(AutoScalingGroupName=group)["Instances"]
    stopped = [
        instance["InstanceId"] for instance in instances if instance["LifecycleState"] == "Warmed:Stopped"
    ]
    return stopped if len(stopped) == count else None


@assumes(_GUIDE, "lambdas/aws/capacity/auto_scaling.py", "they are members, or count", instances=1)
def warm_instances_stand_apart(test_bed: AwsTestBed) -> str:
    """Warm instances are in state Warmed:Stopped and no members of the group."""
    group, [instance] = _create_warm_pool(test_bed, "warm")
    if instance in test_bed.lifecycle_states(group):
        raise Falsified(f"the group lists it as {test_bed.lifecycle_states(group)[instance]}")
    test_bed.expect_desired_capacity(group, 0)
    return "Warmed:Stopped, no member, desired capacity 0"


@assumes(_GUIDE, "contracts/group/warm_pool.py", "another instance is launched", instances=2)
def warm_start(test_bed: AwsTestBed) -> str:
    """A group starts its warm instance before it launches a new one."""
    group, [instance] = _create_warm_pool(test_bed, "warm-start")
    started = test_bed.clock.now()
    served = test_bed.scale_to(group, 1)
    if served != [instance]:
        raise Falsified(f"{served} is in service, not the warm instance {instance}")
    return f"in service {test_bed.clock.now() - started:.0f} s after the request"


@assumes(
    'Auto Scaling guide, "Use instance scale-in protection"',
    "infra/components/capacity/capacity_group.py",
    "it is not protected",
    instances=2,
)
def warm_instances_inherit_protection(test_bed: AwsTestBed) -> str:
    """An instance from the warm pool has the group's scale-in protection."""
    group, _ = _create_warm_pool(test_bed, "warm-protected")
    return test_bed.expect_protected_instance(group)


@assumes(
    "PutWarmPool", "infra/components/capacity/capacity_group.py", "another instance is prepared", instances=2
)
def pool_and_group_together(test_bed: AwsTestBed) -> str:
    """Without MinSize, MaxGroupPreparedCapacity limits the sum of warm pool and group."""
    group, _ = _create_warm_pool(test_bed, "warm-together")
    test_bed.scale_to(group, 1)
    test_bed.clock.sleep(_LAUNCH_SECONDS)
    pool = test_bed.clients("autoscaling").describe_warm_pool(AutoScalingGroupName=group)["Instances"]
    if pool:
        raise Falsified(f"{len(pool)} in the pool while one is in service")
    return f"no instance was prepared in {_LAUNCH_SECONDS:.0f} s"


@assumes(
    f"{_GUIDE}, core concepts",
    "lambdas/aws/capacity/auto_scaling.py",
    "it is terminated, or another instance is chosen",
    instances=2,
)
def scale_in_returns(test_bed: AwsTestBed) -> str:
    """With a reuse policy a scale-in stops the unprotected instance and returns it to the warm pool."""
    group, waiting = _create_warm_pool(test_bed, "warm-return", 2, **_REUSE)
    test_bed.scale_to(group, 2)
    unprotected, client, started_at = waiting[0], test_bed.clients("autoscaling"), test_bed.clock.now()
    client.set_instance_protection(
        AutoScalingGroupName=group, InstanceIds=[unprotected], ProtectedFromScaleIn=False
    )
    client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    returned = test_bed.wait_until(
        lambda: _stopped_instances(test_bed, group, 1), "an instance in the pool", 600
    )
    if returned != [unprotected]:
        raise Falsified(f"{returned} returned, not {unprotected}")
    return f"the unprotected instance was in the pool {test_bed.clock.now() - started_at:.0f} s later"


@assumes(
    "TerminateInstanceInAutoScalingGroup",
    "lambdas/aws/capacity/auto_scaling.py",
    "it is stopped",
    instances=1,
)
def termination_does_not_return(test_bed: AwsTestBed) -> str:
    """TerminateInstanceInAutoScalingGroup terminates an instance also with a reuse policy."""
    group, [instance] = _create_warm_pool(test_bed, "warm-end", 1, **_REUSE)
    test_bed.scale_to(group, 1)
    test_bed.clients("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=instance, ShouldDecrementDesiredCapacity=True
    )

    def state() -> str | None:
        [description] = test_bed.clients("ec2").describe_instances(InstanceIds=[instance])["Reservations"][0][
            "Instances"
        ]
        name = str(description["State"]["Name"])
        return name if name in ("stopped", "terminated") else None

    if (ended := test_bed.wait_until(state, "the end of the instance", 600)) != "terminated":
        raise Falsified(f"it is {ended}")
    return "terminated"


@assumes(
    _GUIDE,
    "userdata/agent/aws/hooks.py",
    "one of the waits is missing",
    instances=2,
    unsupported_reason="moto does not run hooks on the way into the pool",
)
def hooks_fire_twice(test_bed: AwsTestBed) -> str:
    """Launch hooks run on the way into the warm pool and again on the way out of it."""
    group, client = test_bed.group("hooked-pool"), test_bed.clients("autoscaling")
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
        return any(instance["LifecycleState"] == state for instance in instances)

    test_bed.wait_until(lambda: in_pool("Warmed:Pending:Wait"), "Warmed:Pending:Wait")
    test_bed.wait_until(lambda: in_pool("Warmed:Stopped"), "Warmed:Stopped", 600)
    client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    test_bed.wait_until(lambda: "Pending:Wait" in test_bed.lifecycle_states(group).values(), "Pending:Wait")
    return "Warmed:Pending:Wait, later Pending:Wait"
