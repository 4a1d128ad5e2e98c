"""Alarms of the controller, its queues and the capacity groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pulumi

from contracts import names
from infra.components.monitoring.alarm_spec import (
    FIVE_MINUTES,
    MINUTE,
    ONCE,
    PRESENT,
    REPEATED,
    TEN_MINUTES,
    AlarmSpec,
    Condition,
    MetricSource,
    declare_alarm,
    function_alarms,
    of_function,
    of_instances,
    undecided_alarm,
)
from infra.scope import Scope


@dataclass(frozen=True)
class GroupAlarmSettings:
    """A capacity group and the thresholds of its alarms.

    Only groups with NVIDIA GPUs have the GPU alarm: the node agent does not read others. Only groups with a
    fallback run On-Demand alone.
    """

    name: str
    unit: str
    on_demand_ceiling: int
    shortage_minutes: int
    on_demand_minutes: int
    is_nvidia: bool
    has_fallback: bool


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
    yield undecided_alarm("controller", args.scope.stack, args.service, "controller")
    yield from _queue_alarms(args)
    for group in args.groups:
        yield from _group_alarms(args.scope.stack, group, args.service)


def _controller_alarms(function: pulumi.Input[str]) -> Iterator[AlarmSpec]:
    consequence = "capacity is not adjusted."
    yield from function_alarms("controller", function, title="controller", consequence=consequence)
    throttled = "Invocations of the controller are throttled: the account has no concurrency left."
    metrics = MetricSource("AWS/Lambda", {"FunctionName": function})
    yield AlarmSpec("controller-throttles", throttled, metrics, "Throttles", REPEATED)


def _queue_alarms(args: AlarmsArgs) -> Iterator[AlarmSpec]:
    for name, queue, metric, threshold, description in (
        ("wake-ups-old", args.queue, "ApproximateAgeOfOldestMessage", 300, "is older than five minutes."),
        (
            "dead-letters",
            args.dead_letters,
            "ApproximateNumberOfMessagesVisible",
            1,
            "could not be processed or delivered; see the message.",
        ),
    ):
        words = f"A wake-up message of the controller {description}"
        metrics, condition = MetricSource("AWS/SQS", {"QueueName": queue}), Condition("Maximum", threshold)
        yield AlarmSpec(name, words, metrics, metric, condition)


def _group_alarms(stack: str, group: GroupAlarmSettings, controller: str) -> Iterator[AlarmSpec]:
    of_controller, instances = of_function(stack, group.name, controller), of_instances(stack, group.name)
    minutes, periods = group.shortage_minutes, group.on_demand_minutes * MINUTE // FIVE_MINUTES
    unit = group.unit.replace("gpus", "GPUs")
    shortage = Condition("Minimum", periods=minutes, datapoints=minutes)
    on_demand = Condition(
        "Minimum",
        group.on_demand_ceiling + 1,
        periods=periods,
        datapoints=periods,
        period_seconds=FIVE_MINUTES,
    )

    def alarm(
        short: str, metric: str, condition: Condition, description: str, metrics: MetricSource = of_controller
    ) -> AlarmSpec:
        return AlarmSpec(f"{group.name}-{short}", description, metrics, metric, condition)

    yield alarm(
        "shortage",
        "Shortage",
        shortage,
        f"{group.name} has had fewer ready {unit} than its target for {minutes} minutes.",
    )
    yield alarm(
        "on-demand",
        "OnDemand",
        on_demand,
        f"{group.name} has run more than {group.on_demand_ceiling} On-Demand {unit} "
        f"for {group.on_demand_minutes} minutes.",
    )
    if group.has_fallback:
        yield alarm(
            "on-demand-only",
            names.METRIC_ON_DEMAND_ONLY,
            PRESENT,
            f"{group.name} has run On-Demand alone for longer than its policy expected; the controller's log "
            "has the reason.",
        )
    yield alarm(
        "above-max",
        "AboveMaximum",
        TEN_MINUTES,
        f"{group.name} has run more {unit} than its maximum for ten minutes.",
    )
    yield alarm(
        "controller-alarm",
        "AlarmCauses",
        PRESENT,
        f"Launches of {group.name} fail because of quotas, permissions, configuration or an unknown reason, "
        "scaling processes are suspended, instances never report, or the controller lost its state. Its log "
        "has the reason.",
    )
    yield alarm(
        "incomplete-observation",
        names.METRIC_READ_ERRORS,
        TEN_MINUTES,
        f"The controller could not read the whole state of {group.name} for ten minutes; its log has the "
        "errors.",
    )
    booting = f"Instances of {group.name} fail to boot; the log of the instances names the step."
    yield alarm("boot", names.METRIC_BOOT_FAILURES, ONCE, booting, instances)
    if group.is_nvidia:
        lost = f"An instance of {group.name} has lost a GPU; the log of the instances names it."
        yield alarm("gpu-lost", "GpusLost", Condition("Maximum", periods=5, datapoints=2), lost, instances)
    yield alarm(
        "controller-errors",
        "ControllerErrors",
        REPEATED,
        f"The controller fails for {group.name}, or AWS rejects its requests; its log has the error.",
    )
