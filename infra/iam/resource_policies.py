"""Resource-based policies."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from infra.iam.statement import Statement
from infra.scope import Scope


def queue(queue_arn: pulumi.Input[str], rule_arns: Sequence[pulumi.Input[str]]) -> list[Statement]:
    """Return a queue's policy: these EventBridge rules may send; requests without TLS are denied."""
    return [
        Statement(
            "EventBridgeSends",
            ["sqs:SendMessage"],
            [queue_arn],
            {"ArnEquals": {"aws:SourceArn": list(rule_arns)}},
            principal={"Service": "events.amazonaws.com"},
        ),
        Statement(
            "OnlyOverTls",
            ["sqs:SendMessage", "sqs:ReceiveMessage"],
            [queue_arn],
            {"Bool": {"aws:SecureTransport": "false"}},
            principal="*",
            effect="Deny",
        ),
    ]


def topic(scope: Scope, topic_arn: pulumi.Input[str]) -> list[Statement]:
    """Return a topic's policy: the account's alarms and budgets may publish; TLS is required."""
    return [
        Statement(
            "AlarmsPublish",
            ["sns:Publish"],
            [topic_arn],
            {"StringEquals": {"aws:SourceAccount": scope.account_id}},
            principal={"Service": ["budgets.amazonaws.com", "cloudwatch.amazonaws.com"]},
        ),
        Statement(
            "OnlyOverTls",
            ["sns:Publish"],
            [topic_arn],
            {"Bool": {"aws:SecureTransport": "false"}},
            principal="*",
            effect="Deny",
        ),
    ]


def file_system(scope: Scope, file_system_arn: pulumi.Input[str]) -> list[Statement]:
    """Return a file system's policy: the account's roles may mount through a mount target, over TLS only.

    Without an explicit Allow every client in the VPC has full access; a Deny alone would not change that.
    """
    return [
        Statement(
            "MountThroughMountTargets",
            ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"],
            [file_system_arn],
            {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}},
            principal={
                "AWS": pulumi.Output.concat("arn:", scope.partition, ":iam::", scope.account_id, ":root")
            },
        ),
        Statement(
            "OnlyOverTls",
            [
                "elasticfilesystem:ClientMount",
                "elasticfilesystem:ClientRootAccess",
                "elasticfilesystem:ClientWrite",
            ],
            [file_system_arn],
            {"Bool": {"aws:SecureTransport": "false"}},
            principal={"AWS": "*"},
            effect="Deny",
        ),
    ]


def bucket(bucket_arn: pulumi.Input[str]) -> list[Statement]:
    """Return a bucket's policy: requests without TLS are denied."""
    return [
        Statement(
            "OnlyOverTls",
            ["s3:*"],
            [bucket_arn, pulumi.Output.concat(bucket_arn, "/*")],
            {"Bool": {"aws:SecureTransport": "false"}},
            principal="*",
            effect="Deny",
        )
    ]


def access_logs(scope: Scope, bucket_arn: pulumi.Input[str]) -> list[Statement]:
    """Allow load balancers of this account and Region to write access logs to a bucket.

    The service principal is the same in every Region; the accounts of Elastic Load Balancing by Region are
    AWS's former policy. Source: Application Load Balancer guide, "Enable access logs for your Application
    Load Balancer", bucket policy; "Protect against the confused deputy problem".
    """
    load_balancers = scope.arn("elasticloadbalancing", "loadbalancer/*")
    return [
        Statement(
            "LoadBalancersWriteLogs",
            ["s3:PutObject"],
            [pulumi.Output.concat(bucket_arn, "/AWSLogs/", scope.account_id, "/*")],
            {"ArnLike": {"aws:SourceArn": load_balancers}},
            principal={"Service": "logdelivery.elasticloadbalancing.amazonaws.com"},
        )
    ]
