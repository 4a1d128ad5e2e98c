"""Schedules of training jobs: EventBridge Scheduler writes the parameter that requests a run."""

from __future__ import annotations

import json
from typing import Final

import pulumi
import pulumi_aws as aws

from contracts import names
from contracts.jobs.run import SCHEDULED
from infra.components.identity.identity import declare_role
from infra.iam.aws_service_statements import assumed_by_schedules, schedule
from infra.iam.statement import document
from infra.schema.jobs.schedule import Schedule
from infra.scope import Scope

_RETRY_SECONDS: Final = 3600
"""A request that was not written for so long is in the dead-letter queue; the next one may be due."""


def declare(
    scope: Scope, job: str, setting: Schedule, dead_letters_arn: pulumi.Input[str], group: pulumi.Resource
) -> None:
    """Declare a job's schedule and its role, which may write that one parameter of ``group``."""
    name = scope.name(job, "schedule")
    parameter = names.group_parameter(scope.stack, job, names.PARAMETER_FIRING)
    role = declare_role(scope, name, assumed_by_schedules(scope), scope.child_options, job)
    statements = schedule(scope, parameter, dead_letters_arn)
    policy = aws.iam.RolePolicy(name, role=role.name, policy=document(statements), opts=scope.child_options)
    aws.scheduler.Schedule(
        name,
        description=f"Requests runs of {job}",
        schedule_expression=setting.at,
        schedule_expression_timezone=setting.time_zone,
        flexible_time_window=aws.scheduler.ScheduleFlexibleTimeWindowArgs(mode="OFF"),
        target=aws.scheduler.ScheduleTargetArgs(
            # Source: EventBridge Scheduler user guide, "Using universal targets".
            arn=pulumi.Output.concat("arn:", scope.partition, ":scheduler:::aws-sdk:ssm:putParameter"),
            role_arn=role.arn,
            input=json.dumps({"Name": parameter, "Value": SCHEDULED, "Overwrite": True}),
            retry_policy=aws.scheduler.ScheduleTargetRetryPolicyArgs(
                maximum_event_age_in_seconds=_RETRY_SECONDS
            ),
            dead_letter_config=aws.scheduler.ScheduleTargetDeadLetterConfigArgs(arn=dead_letters_arn),
        ),
        opts=pulumi.ResourceOptions(parent=scope.parent, depends_on=[policy, group]),
    )
