"""Lifecycle hooks, at both ends of an instance's life."""

from __future__ import annotations

from typing import Final

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.lab import Falsified, Lab

_GUIDE: Final = 'Auto Scaling guide, "Amazon EC2 Auto Scaling lifecycle hooks"'
_AGENT: Final = "userdata/agent/aws/hooks.py"
_HOOK: Final = "check"


def _hooked(lab: Lab, what: str, transition: str) -> str:
    """Return an empty group with a hook at one end of its instances' lives."""
    group = lab.group(what)
    lab.clients("autoscaling").put_lifecycle_hook(
        AutoScalingGroupName=group,
        LifecycleHookName=_HOOK,
        LifecycleTransition=f"autoscaling:EC2_INSTANCE_{transition}",
        HeartbeatTimeout=300,
        DefaultResult="CONTINUE",
    )
    return group


def _waiting(lab: Lab, group: str, state: str) -> str:
    def waits() -> str | None:
        return next((one for one, now in lab.states(group).items() if now == state), None)

    return lab.until(waits, state)


def _complete(lab: Lab, group: str, instance: str) -> None:
    lab.clients("autoscaling").complete_lifecycle_action(
        AutoScalingGroupName=group,
        LifecycleHookName=_HOOK,
        InstanceId=instance,
        LifecycleActionResult="CONTINUE",
    )


@assumes(_GUIDE, _AGENT, "it is in service before", instances=1)
def launch_hook_holds(lab: Lab) -> str:
    """A launch hook keeps an instance in Pending:Wait until somebody completes it."""
    group = _hooked(lab, "launching", "LAUNCHING")
    lab.clients("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    instance = _waiting(lab, group, "Pending:Wait")
    lab.clock.sleep(30)
    if lab.states(group)[instance] != "Pending:Wait":
        raise Falsified(f"30 s later it is {lab.states(group)[instance]}")
    _complete(lab, group, instance)
    _waiting(lab, group, "InService")
    return "Pending:Wait, then InService"


@assumes("CompleteLifecycleAction", _AGENT, "other words, or none", instances=1)
def no_active_action(lab: Lab) -> str:
    """Completing a hook that does not hold is refused with 'No active Lifecycle Action found'."""
    group = _hooked(lab, "early", "TERMINATING")
    [instance] = lab.serving(group, 1)
    return lab.refused(lambda: _complete(lab, group, instance), "No active Lifecycle Action found")


@assumes(_GUIDE, "lambdas/aws/capacity/auto_scaling.py", "it goes at once, or counts", instances=1)
def terminating_wait(lab: Lab) -> str:
    """A released instance stays listed as Terminating:Wait, no longer counts, and goes with its hook."""
    group = _hooked(lab, "terminating", "TERMINATING")
    [instance] = lab.serving(group, 1)
    lab.clients("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=instance, ShouldDecrementDesiredCapacity=True
    )
    _waiting(lab, group, "Terminating:Wait")
    lab.desires(group, 0)
    _complete(lab, group, instance)
    lab.until(lambda: instance not in lab.states(group), "it is gone")
    return "Terminating:Wait with desired 0, gone once the hook was completed"
