"""Monitoring of a stack: topic, alarms, dashboard and budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from contracts import names
from infra import schema
from infra.components.control.controller import SERVICE, Controller
from infra.components.monitoring import dashboard
from infra.components.monitoring.alarm_spec import AlarmSpec
from infra.components.monitoring.dashboard import DashboardRow
from infra.components.monitoring.group_alarms import Alarms, AlarmsArgs, GroupAlarmSettings
from infra.iam import resource_policies
from infra.iam.statement import document
from infra.scope import Scope


@dataclass(frozen=True)
class MonitoredGroup:
    """A managed group.

    ``is_batch``: a shortage keeps no user waiting. ``rows`` of the dashboard and ``alarms`` are those of the
    entry's kind, in addition to those of every group.
    """

    name: str
    capacity: schema.Capacity
    is_batch: bool = False
    rows: Sequence[DashboardRow] = ()
    alarms: Sequence[AlarmSpec] = ()


@dataclass(frozen=True)
class MonitoringArgs:
    """``alarms`` are those that belong to no group."""

    scope: Scope
    settings: schema.Monitoring
    groups: Sequence[MonitoredGroup]
    controller: Controller
    alarms: Sequence[AlarmSpec] = ()


class Monitoring(pulumi.ComponentResource):
    """The alarm topic with its policy and subscription, the alarms, the dashboard and the budget."""

    topic_arn: pulumi.Output[str]
    dashboard_name: pulumi.Output[str]
    shortage_arns: dict[str, pulumi.Output[str]]
    """ARNs of the shortage alarms by group."""

    def __init__(self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the monitoring."""
        super().__init__("gpu-spot:infra:Monitoring", name, None, opts)
        self._args, self._child = args, pulumi.ResourceOptions(parent=self)
        scope, settings, controller = args.scope, args.settings, args.controller
        self.topic_arn = self._topic().arn
        alarms = Alarms(
            scope.name("alarms"),
            AlarmsArgs(
                scope,
                self.topic_arn,
                tuple(
                    GroupAlarmSettings(
                        group.name,
                        group.capacity.unit,
                        group.capacity.ceiling,
                        settings.stall_minutes if group.is_batch else settings.shortage_minutes,
                        settings.on_demand_minutes,
                        group.capacity.is_nvidia,
                        group.capacity.fallback.enabled,
                    )
                    for group in args.groups
                ),
                function=controller.function_name,
                service=SERVICE,
                queue=controller.wake_ups.queue_name,
                dead_letters=controller.wake_ups.dead_letter_name,
                extra_alarms=(*args.alarms, *(alarm for group in args.groups for alarm in group.alarms)),
            ),
            self._child,
        )
        self.shortage_arns = {group.name: alarms.arns[f"{group.name}-shortage"] for group in args.groups}
        rows = [
            row
            for group in args.groups
            for row in (
                dashboard.group_row(scope, group.name, is_nvidia=group.capacity.is_nvidia),
                *group.rows,
            )
        ]
        board = aws.cloudwatch.Dashboard(
            scope.name("board"),
            dashboard_name=f"{scope.prefix}{scope.region}",
            dashboard_body=pulumi.Output.json_dumps(
                dashboard.body(scope, rows, controller.function_name, controller.log_group_name)
            ),
            opts=self._child,
        )
        self.dashboard_name = board.dashboard_name
        if args.settings.monthly_budget_usd is not None:
            self._budget(f"{args.settings.monthly_budget_usd:f}")
        self.register_outputs({"topic": self.topic_arn})

    def _topic(self) -> aws.sns.Topic:
        scope = self._args.scope
        name = scope.name("alarms")
        topic = aws.sns.Topic(
            name, kms_master_key_id=scope.kms_key_arn, tags=scope.tags(name), opts=self._child
        )
        aws.sns.TopicPolicy(
            name, arn=topic.arn, policy=document(resource_policies.topic(scope, topic.arn)), opts=self._child
        )
        if self._args.settings.email is not None:
            aws.sns.TopicSubscription(
                name, topic=topic.arn, protocol="email", endpoint=self._args.settings.email, opts=self._child
            )
        return topic

    def _budget(self, amount: str) -> None:
        scope = self._args.scope
        name = scope.name("budget")
        aws.budgets.Budget(
            name,
            budget_type="COST",
            time_unit="MONTHLY",
            limit_amount=amount,
            limit_unit="USD",
            # Matches after the tag is activated as a cost allocation tag (Billing, once per account).
            cost_filters=[
                aws.budgets.BudgetCostFilterArgs(
                    name="TagKeyValue", values=[f"user:{names.TAG_STACK}${scope.stack}"]
                )
            ],
            notifications=[
                aws.budgets.BudgetNotificationArgs(
                    notification_type=kind,
                    comparison_operator="GREATER_THAN",
                    threshold=threshold,
                    threshold_type="PERCENTAGE",
                    subscriber_sns_topic_arns=[self.topic_arn],
                )
                for kind, threshold in (("ACTUAL", 80), ("FORECASTED", 100))
            ],
            tags=scope.tags(name),
            opts=self._child,
        )
