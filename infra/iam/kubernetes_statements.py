"""Permissions of pods, and of cluster components that act for them."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from infra.iam.queue_statements import QueueAccess, secret_arns
from infra.iam.statement import ANY_RESOURCE, Statement, use_key
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


def worker(scope: Scope, queue: QueueAccess) -> list[Statement]:
    """Return the permissions of a service's pods: those of its queue's workers."""
    secrets = [] if queue.secret is None else [queue.secret]
    return [*_read_secrets(scope, secrets), *queue.work, *use_key(scope, [queue.service])]


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
