"""Permissions of pods, and of cluster components that act for them."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from infra.iam.queue_statements import QueueAccess, secret_arns
from infra.iam.statement import ANY_RESOURCE, Statement, permitted, use_key
from infra.schema.work import Work
from infra.scope import Scope


def assumed_by_pods(scope: Scope, cluster: str, namespace: str, account: str) -> list[Statement]:
    """Trust EKS Pod Identity, for the pods of one service account of one cluster.

    EKS requests the session with these tags, which are request tags in a trust policy; with
    ``disableSessionTags`` on the association the trust would fail. The source account prevents a confused
    deputy (used in awslabs/mountpoint-s3-csi-driver 781).
    Source: EKS guide, "Create IAM role with trust policy required by EKS Pod Identity".
    """
    tags = {
        "aws:RequestTag/eks-cluster-name": cluster,
        "aws:RequestTag/kubernetes-namespace": namespace,
        "aws:RequestTag/kubernetes-service-account": account,
        "aws:SourceAccount": scope.account_id,
    }
    return [
        Statement(
            "AssumeByPods",
            ["sts:AssumeRole", "sts:TagSession"],
            conditions={"StringEquals": tags},
            principal={"Service": "pods.eks.amazonaws.com"},
        )
    ]


def command(scope: Scope, entry: Work, queue: QueueAccess | None) -> list[Statement]:
    """Return the permissions of an entry's pods: its secrets, its own, and those of its queue's workers."""
    has_secret = queue is not None and queue.secret is not None
    secrets = [queue.secret] if queue is not None and queue.secret is not None else []
    services = [] if queue is None else [queue.service]
    if entry.secret_names and not has_secret:
        services.append("secretsmanager")
    if entry.parameter_names:
        services.append("ssm")
    return [
        *_read_secrets(scope, [*secrets, *entry.secret_names]),
        *_read_parameters(scope, entry.parameter_names),
        *permitted(entry.permissions),
        *(queue.work if queue is not None else ()),
        *(use_key(scope, services) if services else ()),
    ]


def keda() -> list[Statement]:
    """Return the permissions of KEDA's operator: read metrics, of which IAM knows no single ones."""
    return [Statement("ReadNumbersOfWorkers", ["cloudwatch:GetMetricData"], ANY_RESOURCE)]


def file_system_driver(
    file_system: pulumi.Input[str], access_points: Sequence[pulumi.Input[str]]
) -> list[Statement]:
    """Return the permissions of the EFS driver on nodes: mount these access points."""
    return [
        Statement(
            "MountCheckpoints",
            ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"],
            [file_system],
            {"StringEquals": {"elasticfilesystem:AccessPointArn": list(access_points)}},
        )
    ]


def _read_secrets(scope: Scope, secrets: Sequence[pulumi.Input[str]]) -> list[Statement]:
    if not secrets:
        return []
    # The driver needs both (secrets-store-csi-driver-provider-aws, "Usage").
    actions = ["secretsmanager:DescribeSecret", "secretsmanager:GetSecretValue"]
    return [Statement("ReadQueueSecrets", actions, secret_arns(scope, secrets))]


def _read_parameters(scope: Scope, parameters: Sequence[str]) -> list[Statement]:
    if not parameters:
        return []
    resources = [scope.arn("ssm", f"parameter/{name}") for name in parameters]
    return [Statement("ReadParameters", ["ssm:GetParameters"], resources)]
