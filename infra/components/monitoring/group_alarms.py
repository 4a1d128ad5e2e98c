"""What wakes a person."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pulumi

from contracts import names
from infra.components.monitoring.alarm_spec import (
    FIVE_MINUTES,
    MINUTE,
    AlarmSpec,
    Inputs,
    declare,
    group_dimensions,
    of_function,
)
from infra.scope import Scope


@dataclass(frozen=True)
class Watched:
    """One capacity group: its ceiling of on-demand instances, the patience with it in minutes, and its GPUs.

    Only NVIDIA's are asked how they are.
    """

    name: str
    on_demand_ceiling: int
    shortage_minutes: int
    on_demand_minutes: int
    is_nvidia: bool


@dataclass(frozen=True)
class AlarmsArgs:
    """``queue`` and ``dead_letters`` are names, ``service`` is what the function calls itself in metrics.

    ``more`` are alarms of other things.
    """

    scope: Scope
    topic_arn: pulumi.Input[str]
    groups: tuple[Watched, ...]
    function: pulumi.Input[str]
    service: str
    queue: pulumi.Input[str]
    dead_letters: pulumi.Input[str]
    more: tuple[AlarmSpec, ...] = ()


class Alarms(pulumi.ComponentResource):
    """Produces an alarm for each thing that only a person can mend; the topic hears its end, too."""

    arns: dict[str, pulumi.Output[str]]
    """By the alarm's short name."""

    def __init__(self, name: str, args: AlarmsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the alarms."""
        super().__init__("gpu-spot:infra:Alarms", name, None, opts)
        self.arns = {
            alarm.name: declare(args.scope, args.topic_arn, alarm, self).arn for alarm in alarms(args)
        }
        self.register_outputs({})


def alarms(args: AlarmsArgs) -> Iterator[AlarmSpec]:
    """Yield all alarms of a stack."""
    yield from args.more
    yield from _of_function(args.function)
    yield from _of_queues(args)
    for group in args.groups:
        stack = args.scope.stack
        yield from _of_group(stack, group, group_dimensions(stack, group.name, args.service))


def _of_function(function: pulumi.Input[str]) -> Iterator[AlarmSpec]:
    yield from of_function("controller", function, who="controller", silent="nobody keeps the groups full.")
    yield AlarmSpec(
        "controller-throttles",
        "Runs of the controller are refused for lack of concurrency.",
        "AWS/Lambda",
        "Throttles",
        {"FunctionName": function},
        "Sum",
        at_least=1,
        periods=5,
        needed=3,
    )


def _of_queues(args: AlarmsArgs) -> Iterator[AlarmSpec]:
    yield AlarmSpec(
        "wake-ups-old",
        "A wake-up has waited for more than five minutes.",
        "AWS/SQS",
        "ApproximateAgeOfOldestMessage",
        {"QueueName": args.queue},
        "Maximum",
        at_least=300,
    )
    yield AlarmSpec(
        "dead-letters",
        "A wake-up could not be handled or delivered; the message tells which.",
        "AWS/SQS",
        "ApproximateNumberOfMessagesVisible",
        {"QueueName": args.dead_letters},
        "Maximum",
        at_least=1,
    )


def _of_group(stack: str, group: Watched, of: Inputs) -> Iterator[AlarmSpec]:
    of_instances = {"group": group.name, "stack": stack}
    yield AlarmSpec(
        f"{group.name}-shortage",
        f"{group.name} lacks ready instances for {group.shortage_minutes} minutes.",
        names.METRIC_NAMESPACE,
        "Shortage",
        of,
        "Minimum",
        at_least=1,
        periods=group.shortage_minutes,
        needed=group.shortage_minutes,
    )
    periods = group.on_demand_minutes * MINUTE // FIVE_MINUTES
    yield AlarmSpec(
        f"{group.name}-on-demand",
        f"{group.name} pays for more than {group.on_demand_ceiling} on-demand instances "
        f"for {group.on_demand_minutes} minutes.",
        names.METRIC_NAMESPACE,
        "OnDemand",
        of,
        "Minimum",
        at_least=group.on_demand_ceiling + 1,
        period=FIVE_MINUTES,
        periods=periods,
        needed=periods,
    )
    yield AlarmSpec(
        f"{group.name}-above-max",
        f"{group.name} runs more instances than its maximum for ten minutes.",
        names.METRIC_NAMESPACE,
        "AboveMaximum",
        of,
        "Minimum",
        at_least=1,
        periods=10,
        needed=10,
    )
    yield AlarmSpec(
        f"{group.name}-refused",
        f"Launches of {group.name} are refused for limits, permissions or configuration, instances never "
        "report, or memory was lost; the controller's log said which when it began.",
        names.METRIC_NAMESPACE,
        "AlarmCauses",
        of,
        "Maximum",
        at_least=1,
        period=FIVE_MINUTES,
    )
    yield AlarmSpec(
        f"{group.name}-half-seen",
        f"The controller cannot read all of {group.name}: workers' rows make no sense, or AWS withholds "
        "launches or notices; its log says which.",
        names.METRIC_NAMESPACE,
        "Troubles",
        of,
        "Minimum",
        at_least=1,
        periods=10,
        needed=10,
    )
    yield AlarmSpec(
        f"{group.name}-boot",
        f"Instances of {group.name} fail to boot; the log of the instances says at which step.",
        names.INSTANCE_NAMESPACE,
        "BootFailures",
        of_instances,
        "Sum",
        at_least=1,
        period=FIVE_MINUTES,
    )
    if group.is_nvidia:
        yield AlarmSpec(
            f"{group.name}-gpu-lost",
            f"An instance of {group.name} has lost a GPU; the lines of its metrics say which instance.",
            names.INSTANCE_NAMESPACE,
            "GpusLost",
            of_instances,
            "Maximum",
            at_least=1,
            periods=5,
            needed=2,
        )
    yield AlarmSpec(
        f"{group.name}-unkept",
        f"The controller cannot look after {group.name}, or AWS refuses what it asks; its log says why.",
        names.METRIC_NAMESPACE,
        "ControllerErrors",
        of,
        "Sum",
        at_least=1,
        periods=5,
        needed=3,
    )
