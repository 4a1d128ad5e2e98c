"""What pods of a cluster may do, and the cluster's own engines on their behalf."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from infra.iam.queue_statements import QueueAccess, merged, secrets_of
from infra.iam.statement import Statement, with_key
from infra.scope import Scope


def assumed_by_pods(scope: Scope, cluster: str, namespace: str, account: str) -> list[Statement]:
    """Trust EKS Pod Identity, for the pods of one service account of one cluster.

    The tags are of the session that EKS asks for, and are the request's in a trust policy (EKS guide, "Create
    IAM role with trust policy required by EKS Pod Identity"); ``disableSessionTags`` on the association would
    take them away, and the trust with them. The source is the cluster's own account (the confused deputy's
    way in; seen at work in awslabs/mountpoint-s3-csi-driver 781).
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
    """What a service's pods may do: what their queue takes, as on instances."""
    return [*_read_secrets(scope, [queue]), *queue.work, *with_key(scope, [queue.service])]


def keda(scope: Scope, queues: Sequence[QueueAccess]) -> list[Statement]:
    """What KEDA's operator needs to see how many wait."""
    counted = merged(statement for queue in queues for statement in queue.count)
    services = sorted({queue.service for queue in queues})
    return [*_read_secrets(scope, queues), *counted, *with_key(scope, services)]


def file_system_driver(
    file_system: pulumi.Input[str], access_points: Sequence[pulumi.Input[str]]
) -> list[Statement]:
    """What the EFS driver on the nodes needs to mount what lies behind ``access_points``, and no more."""
    return [
        Statement(
            "MountCheckpoints",
            ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"],
            [file_system],
            {"StringEquals": {"elasticfilesystem:AccessPointArn": list(access_points)}},
        )
    ]


def _read_secrets(scope: Scope, queues: Sequence[QueueAccess]) -> list[Statement]:
    secrets = secrets_of(queues)
    if not secrets:
        return []
    return [
        Statement(
            "ReadQueueSecrets",
            # The driver asks for both (secrets-store-csi-driver-provider-aws, "Usage").
            ["secretsmanager:DescribeSecret", "secretsmanager:GetSecretValue"],
            # AWS adds six letters of its own to the name.
            [pulumi.Output.concat(scope.arn("secretsmanager", "secret:"), one, "-??????") for one in secrets],
        )
    ]
