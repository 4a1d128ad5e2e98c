"""What people hear and see of a stack."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws

from contracts import names
from infra import schema
from infra.components.control.controller import SERVICE, Controller
from infra.components.monitoring import broker_alarms, dashboard, queue_alarms, sqs_alarms, tenant_alarms
from infra.components.monitoring.alarms import Alarms, AlarmsArgs, Watched
from infra.components.monitoring.broker_alarms import WatchedBroker
from infra.components.monitoring.queue_alarms import QueueBounds
from infra.components.monitoring.sqs_alarms import WatchedSqs
from infra.iam import resource_policies
from infra.iam.statement import document
from infra.scope import Scope


@dataclass(frozen=True)
class MonitoringArgs:
    """``capacities`` of the groups that are kept; ``jobs``: those of jobs, and if they have a volume.

    ``deadlines`` and ``budgets`` name the jobs that have one, ``scaling`` the services that scale.
    ``tenants`` are those of shared hosts, by host.
    """

    scope: Scope
    settings: schema.Monitoring
    capacities: Mapping[str, schema.Capacity]
    jobs: Mapping[str, bool]
    deadlines: Collection[str]
    budgets: Collection[str]
    controller: Controller
    brokers: Sequence[WatchedBroker] = ()
    queues: Sequence[QueueBounds] = ()
    sqs: Sequence[WatchedSqs] = ()
    scaling: Collection[str] = ()
    tenants: Mapping[str, Collection[str]] = field(default_factory=dict)


class Monitoring(pulumi.ComponentResource):
    """Produces: topic with its policy, subscription, alarms, dashboard, budget."""

    topic_arn: pulumi.Output[str]
    dashboard_name: pulumi.Output[str]
    shortage_arns: dict[str, pulumi.Output[str]]
    """The alarm that rings for a shortage, by group."""

    def __init__(self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the monitoring."""
        super().__init__("gpu-spot:infra:Monitoring", name, None, opts)
        self._args, self._child = args, pulumi.ResourceOptions(parent=self)
        scope, controller = args.scope, args.controller
        self.topic_arn = self._topic().arn
        alarms = Alarms(
            scope.name("alarms"),
            AlarmsArgs(
                scope,
                self.topic_arn,
                tuple(
                    Watched(
                        group,
                        capacity.ceiling,
                        args.settings.standstill_minutes
                        if group in args.jobs or group in args.tenants
                        else args.settings.shortage_minutes,
                        args.settings.on_demand_minutes,
                        capacity.is_nvidia,
                        is_job=group in args.jobs,
                        has_volume=args.jobs.get(group, False),
                        has_deadline=group in args.deadlines,
                        has_budget=group in args.budgets,
                    )
                    for group, capacity in args.capacities.items()
                ),
                function=controller.function_name,
                service=SERVICE,
                queue=controller.wake_ups.queue_name,
                dead_letters=controller.wake_ups.dead_letter_name,
                more=(
                    *(spec for broker in args.brokers for spec in broker_alarms.alarms(broker)),
                    *(spec for queue in args.queues for spec in queue_alarms.alarms(scope.stack, queue)),
                    *(spec for queue in args.sqs for spec in sqs_alarms.alarms(queue)),
                    *(
                        spec
                        for host, tenants in args.tenants.items()
                        for spec in tenant_alarms.alarms(scope.stack, host, tenants)
                    ),
                ),
            ),
            self._child,
        )
        self.shortage_arns = {group: alarms.arns[f"{group}-shortage"] for group in args.capacities}
        board = aws.cloudwatch.Dashboard(
            scope.name("board"),
            dashboard_name=f"{scope.prefix}{scope.region}",
            dashboard_body=pulumi.Output.json_dumps(
                dashboard.body(
                    scope,
                    {name: capacity.is_nvidia for name, capacity in args.capacities.items()},
                    services=args.capacities.keys() - args.jobs.keys() - args.tenants.keys(),
                    queues=[queue.service for queue in args.queues],
                    scaling=args.scaling,
                    tenants=args.tenants,
                    function=controller.function_name,
                    service=SERVICE,
                    log_group=controller.log_group_name,
                )
            ),
            opts=self._child,
        )
        self.dashboard_name = board.dashboard_name
        if args.settings.monthly_budget_usd is not None:
            self._budget(str(args.settings.monthly_budget_usd))
        self.register_outputs({"topic": self.topic_arn})

    def _topic(self) -> aws.sns.Topic:
        scope = self._args.scope
        name = scope.name("alarms")
        topic = aws.sns.Topic(
            name, kms_master_key_id=scope.kms_key_arn, tags=scope.tags(name), opts=self._child
        )
        aws.sns.TopicPolicy(
            name,
            arn=topic.arn,
            policy=document(resource_policies.topic(scope, topic.arn)),
            opts=self._child,
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
            # Counts once the tag is activated as a cost allocation tag (Billing, once for each account).
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
