"""VPC flow logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pulumi
import pulumi_aws as aws

from infra.components.identity.identity import declare_role
from infra.iam import aws_service_statements
from infra.iam.statement import document
from infra.scope import Scope


@dataclass(frozen=True)
class FlowLogsArgs:
    """Arguments of ``FlowLogs``."""

    scope: Scope
    vpc_id: pulumi.Input[str]
    traffic: Literal["rejected", "all"]
    retention_days: int


class FlowLogs(pulumi.ComponentResource):
    """A flow log with its log group and role."""

    def __init__(self, name: str, args: FlowLogsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the flow log."""
        super().__init__("gpu-spot:infra:FlowLogs", name, None, opts)
        child, tags = pulumi.ResourceOptions(parent=self), args.scope.tags(name)
        log = aws.cloudwatch.LogGroup(
            name,
            retention_in_days=args.retention_days,
            kms_key_id=args.scope.kms_key_arn,
            tags=tags,
            opts=child,
        )
        trust = aws_service_statements.assumed_by_flow_logs(args.scope)
        role = declare_role(args.scope, name, trust, child)
        policy = aws.iam.RolePolicy(
            name, role=role.name, policy=document(aws_service_statements.flow_logs(log.arn)), opts=child
        )
        aws.ec2.FlowLog(
            name,
            vpc_id=args.vpc_id,
            traffic_type="ALL" if args.traffic == "all" else "REJECT",
            log_destination=log.arn,
            iam_role_arn=role.arn,
            tags=tags,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[policy]),
        )
        self.register_outputs({})
