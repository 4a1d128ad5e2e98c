"""Alarms of the controller, its queues and the capacity groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pulumi

from contracts import names
from infra.components.monitoring.alarm_spec import (
    FIVE_MINUTES,
    MINUTE,
    AlarmSpec,
    Dimensions,
    declare_alarm,
    function_alarms,
    group_dimensions,
)
from infra.scope import Scope


@dataclass(frozen=True)
class GroupAlarmSettings:
    """A capacity group and the thresholds of its alarms.

    Only groups with NVIDIA GPUs have the GPU alarm: the node agent does not read others. Only groups with a
    fallback run On-Demand alone.
    """

    name: str
    on_demand_ceiling: int
    shortage_minutes: int
    on_demand_minutes: int
    is_nvidia: bool
    has_fallback: bool
    has_hourly_budget: bool


@dataclass(frozen=True)
class AlarmsArgs:
    """``queue`` and ``dead_letters`` are queue names, ``service`` a dimension of the function's metrics."""

    scope: Scope
    topic_arn: pulumi.Input[str]
    groups: tuple[GroupAlarmSettings, ...]
    function: pulumi.Input[str]
    service: str
    queue: pulumi.Input[str]
    dead_letters: pulumi.Input[str]
    extra_alarms: tuple[AlarmSpec, ...] = ()


class Alarms(pulumi.ComponentResource):
    """The stack's alarms. Each notifies the topic when it enters ``ALARM`` and when it returns to ``OK``."""

    arns: dict[str, pulumi.Output[str]]
    """ARNs of the alarms by short name."""

    def __init__(self, name: str, args: AlarmsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the alarms."""
        super().__init__("gpu-spot:infra:Alarms", name, None, opts)
        self.arns = {
            alarm.name: declare_alarm(args.scope, args.topic_arn, alarm, self).arn for alarm in alarms(args)
        }
        self.register_outputs({})


def alarms(args: AlarmsArgs) -> Iterator[AlarmSpec]:
    """Yield all alarms of a stack."""
    yield from args.extra_alarms
    yield from _controller_alarms(args.function)
    yield from _queue_alarms(args)
    for group in args.groups:
        stack = args.scope.stack
        yield from _group_alarms(stack, group, group_dimensions(stack, group.name, args.service))


def _controller_alarms(function: pulumi.Input[str]) -> Iterator[AlarmSpec]:
    yield from function_alarms(
        "controller", function, title="controller", consequence="capacity is not adjusted."
    )
    yield AlarmSpec(
        "controller-throttles",
        "Invocations of the controller are throttled: the account has no concurrency left.",
        "AWS/Lambda",
        "Throttles",
        {"FunctionName": function},
        "Sum",
        threshold=1,
        periods=5,
        datapoints=3,
    )


def _queue_alarms(args: AlarmsArgs) -> Iterator[AlarmSpec]:
    yield AlarmSpec(
        "wake-ups-old",
        "A wake-up message of the controller is older than five minutes.",
        "AWS/SQS",
        "ApproximateAgeOfOldestMessage",
        {"QueueName": args.queue},
        "Maximum",
        threshold=300,
    )
    yield AlarmSpec(
        "dead-letters",
        "A wake-up message of the controller could not be processed or delivered; see the message.",
        "AWS/SQS",
        "ApproximateNumberOfMessagesVisible",
        {"QueueName": args.dead_letters},
        "Maximum",
        threshold=1,
    )


def _group_alarms(stack: str, group: GroupAlarmSettings, dimensions: Dimensions) -> Iterator[AlarmSpec]:
    instance_dimensions = {"group": group.name, "stack": stack}
    yield AlarmSpec(
        f"{group.name}-shortage",
        f"{group.name} has had fewer ready instances than its target for {group.shortage_minutes} minutes.",
        names.METRIC_NAMESPACE,
        "Shortage",
        dimensions,
        "Minimum",
        threshold=1,
        periods=group.shortage_minutes,
        datapoints=group.shortage_minutes,
    )
    periods = group.on_demand_minutes * MINUTE // FIVE_MINUTES
    yield AlarmSpec(
        f"{group.name}-on-demand",
        f"{group.name} has run more than {group.on_demand_ceiling} On-Demand instances "
        f"for {group.on_demand_minutes} minutes.",
        names.METRIC_NAMESPACE,
        "OnDemand",
        dimensions,
        "Minimum",
        threshold=group.on_demand_ceiling + 1,
        period_seconds=FIVE_MINUTES,
        periods=periods,
        datapoints=periods,
    )
    yield from _money_alarms(group, dimensions)
    yield AlarmSpec(
        f"{group.name}-above-max",
        f"{group.name} has run more instances than its maximum for ten minutes.",
        names.METRIC_NAMESPACE,
        "AboveMaximum",
        dimensions,
        "Minimum",
        threshold=1,
        periods=10,
        datapoints=10,
    )
    yield AlarmSpec(
        f"{group.name}-controller-alarm",
        f"Launches of {group.name} fail because of quotas, permissions, configuration or an unknown reason, "
        "scaling processes are suspended, instances never report, or the controller lost its state. Its log "
        "has the reason.",
        names.METRIC_NAMESPACE,
        "AlarmCauses",
        dimensions,
        "Maximum",
        threshold=1,
        period_seconds=FIVE_MINUTES,
        logical_name=f"{group.name}-refused",
    )
    yield AlarmSpec(
        f"{group.name}-incomplete-observation",
        f"The controller could not read the whole state of {group.name} for ten minutes; its log has the "
        "errors.",
        names.METRIC_NAMESPACE,
        names.METRIC_READ_ERRORS,
        dimensions,
        "Minimum",
        threshold=1,
        periods=10,
        datapoints=10,
        logical_name=f"{group.name}-half-seen",
    )
    yield AlarmSpec(
        f"{group.name}-boot",
        f"Instances of {group.name} fail to boot; the log of the instances names the step.",
        names.INSTANCE_NAMESPACE,
        "BootFailures",
        instance_dimensions,
        "Sum",
        threshold=1,
        period_seconds=FIVE_MINUTES,
    )
    if group.is_nvidia:
        yield AlarmSpec(
            f"{group.name}-gpu-lost",
            f"An instance of {group.name} has lost a GPU; the log of the instances names it.",
            names.INSTANCE_NAMESPACE,
            "GpusLost",
            instance_dimensions,
            "Maximum",
            threshold=1,
            periods=5,
            datapoints=2,
        )
    yield AlarmSpec(
        f"{group.name}-controller-errors",
        f"The controller fails for {group.name}, or AWS rejects its requests; its log has the error.",
        names.METRIC_NAMESPACE,
        "ControllerErrors",
        dimensions,
        "Sum",
        threshold=1,
        periods=5,
        datapoints=3,
        logical_name=f"{group.name}-unkept",
    )


def _money_alarms(group: GroupAlarmSettings, dimensions: Dimensions) -> Iterator[AlarmSpec]:
    if group.has_fallback:
        yield AlarmSpec(
            f"{group.name}-on-demand-only",
            f"{group.name} has run On-Demand alone for longer than its policy expected; the controller's log "
            "has the reason.",
            names.METRIC_NAMESPACE,
            names.METRIC_ON_DEMAND_ONLY,
            dimensions,
            "Maximum",
            threshold=1,
            period_seconds=FIVE_MINUTES,
        )
    if group.has_hourly_budget:
        yield AlarmSpec(
            f"{group.name}-hourly-budget",
            f"The hourly budget of {group.name} has withheld capacity that it lacks for ten minutes.",
            names.METRIC_NAMESPACE,
            names.METRIC_HOURLY_BUDGET_REACHED,
            dimensions,
            "Minimum",
            threshold=1,
            periods=10,
            datapoints=10,
        )
