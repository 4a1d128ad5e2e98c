"""Interruption drills: AWS FIS experiments that interrupt a group's Spot instances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from contracts import names
from infra.components.identity.identity import declare_role
from infra.iam import drill_statements
from infra.iam.statement import document
from infra.scope import Scope

ACTION: Final = "aws:ec2:send-spot-instance-interruptions"
"""Sends a rebalance recommendation and the two-minute notice, then interrupts the instance as EC2 does. It
does not apply to On-Demand instances. Source: FIS user guide, "Actions reference", Amazon EC2 actions; EC2
user guide, "Initiate a Spot Instance interruption", which lists the regions without it."""
_BEFORE_INTERRUPTION: Final = "PT2M"
"""Time from the start of the action to the interruption. The minimum: the notice is sent immediately.
Source: FIS user guide, "Actions reference"."""
_TARGET: Final = "instances"


@dataclass(frozen=True)
class DrillsArgs:
    """By group: ``instance_counts`` to interrupt, and ``stop_alarms``, ARNs of alarms that stop the drill."""

    scope: Scope
    instance_counts: Mapping[str, int]
    stop_alarms: Mapping[str, pulumi.Input[str]]


class Drills(pulumi.ComponentResource):
    """For each group a FIS experiment template and its role."""

    def __init__(self, name: str, args: DrillsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the templates; an operator starts experiments."""
        super().__init__("gpu-spot:infra:Drills", name, None, opts)
        self._scope, self._child = args.scope, pulumi.ResourceOptions(parent=self)
        for group, count in args.instance_counts.items():
            self._template(group, count, args.stop_alarms[group])
        self.register_outputs({})

    def _template(self, group: str, count: int, alarm: pulumi.Input[str]) -> None:
        scope = self._scope
        name = scope.name(group, "drill")
        tags = scope.tags(name, group=group)
        trust = drill_statements.assumed_by_experiments(scope)
        role = declare_role(scope, name, trust, self._child, group)
        aws.iam.RolePolicy(
            name, role=role.name, policy=document(drill_statements.drill(scope, group)), opts=self._child
        )
        aws.fis.ExperimentTemplate(
            name,
            description=f"Interrupts {count} Spot instances of {group}.",
            role_arn=role.arn,
            targets=[
                aws.fis.ExperimentTemplateTargetArgs(
                    name=_TARGET,
                    resource_type="aws:ec2:spot-instance",
                    selection_mode=f"COUNT({count})",
                    resource_tags=[
                        aws.fis.ExperimentTemplateTargetResourceTagArgs(key=key, value=value)
                        for key, value in ((names.TAG_STACK, scope.stack), (names.TAG_GROUP, group))
                    ],
                    filters=[
                        aws.fis.ExperimentTemplateTargetFilterArgs(path="State.Name", values=["running"])
                    ],
                )
            ],
            actions=[
                aws.fis.ExperimentTemplateActionArgs(
                    name="interrupt",
                    action_id=ACTION,
                    parameters=[
                        aws.fis.ExperimentTemplateActionParameterArgs(
                            key="durationBeforeInterruption", value=_BEFORE_INTERRUPTION
                        )
                    ],
                    target=aws.fis.ExperimentTemplateActionTargetArgs(key="SpotInstances", value=_TARGET),
                )
            ],
            stop_conditions=[
                aws.fis.ExperimentTemplateStopConditionArgs(source="aws:cloudwatch:alarm", value=alarm)
            ],
            tags=tags,
            opts=self._child,
        )
