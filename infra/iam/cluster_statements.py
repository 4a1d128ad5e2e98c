"""IAM of a cluster created by the stack: control plane, nodes, Karpenter, drivers."""

from __future__ import annotations

from typing import Final

import pulumi

from infra.iam.statement import ANY_RESOURCE, Statement, grant_key, use_key
from infra.scope import Scope

CONTROL_PLANE: Final = ("AmazonEKSClusterPolicy",)
"""AWS managed policies of the control plane."""
NODE: Final = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly")
"""Policies of nodes: describe EC2, EKS Pod Identity, pull images. The network plugin has a separate role.

AmazonEKSWorkerNodeMinimalPolicy does not suffice: `nodeadm` calls ``ec2:DescribeInstances`` before the
kubelet starts.
Source: EKS guide, "Amazon EKS node IAM role"; amazon-eks-ami, nodeadm/internal/api/status.go.
"""
NETWORK: Final = ("AmazonEKS_CNI_Policy",)
"""Policies of the network plugin (EKS guide, "Configure Amazon VPC CNI plugin")."""
VOLUMES: Final = ("AmazonEBSCSIDriverPolicyV2",)
"""Policies of the EBS volume driver: volumes, and snapshots to create them from, must have its tag. The one
before it, without V2, allowed any snapshot; AWS advises the change (aws-ebs-csi-driver 2918)."""

_CREATED: Final = ("fleet", "instance", "volume", "network-interface", "spot-instances-request")


def managed_policy_arn(scope: Scope, name: str) -> pulumi.Output[str]:
    """Return the ARN of an AWS managed policy."""
    return pulumi.Output.concat("arn:", scope.partition, ":iam::aws:policy/", name)


def karpenter(
    scope: Scope, cluster: str, queue_arn: pulumi.Input[str], node_role_arn: pulumi.Input[str]
) -> list[Statement]:
    """Permissions of Karpenter's controller for one cluster and one node role.

    Source: karpenter.sh, "CloudFormation" (1.14), without those that manage instance profiles: nodes have the
    stack's. Resources get the cluster's tag at creation, and only tagged resources may be changed.
    """
    owned_tags = {f"aws:ResourceTag/kubernetes.io/cluster/{cluster}": "owned"}
    request_tags = {
        f"aws:RequestTag/kubernetes.io/cluster/{cluster}": "owned",
        "aws:RequestTag/eks:eks-cluster-name": cluster,
    }
    pool_tags = {"aws:ResourceTag/karpenter.sh/nodepool": "*"}
    pool_request_tags = {"aws:RequestTag/karpenter.sh/nodepool": "*"}
    created = [scope.arn("ec2", f"{kind}/*") for kind in _CREATED]
    template = scope.arn("ec2", "launch-template/*")
    return [
        Statement(
            "LaunchFrom",
            ["ec2:CreateFleet", "ec2:RunInstances"],
            [
                *(_public(scope, f"{kind}/*") for kind in ("image", "snapshot")),
                *(scope.arn("ec2", f"{kind}/*") for kind in ("security-group", "subnet")),
            ],
        ),
        Statement(
            "LaunchFromItsTemplates",
            ["ec2:CreateFleet", "ec2:RunInstances"],
            [template],
            {"StringEquals": owned_tags, "StringLike": pool_tags},
        ),
        Statement(
            "LaunchTagged",
            ["ec2:CreateFleet", "ec2:RunInstances"],
            created,
            {"StringEquals": request_tags, "StringLike": pool_request_tags},
        ),
        Statement(
            "MakeItsTemplates",
            ["ec2:CreateLaunchTemplate"],
            [template],
            {"StringEquals": request_tags, "StringLike": pool_request_tags},
        ),
        Statement(
            "TagWhatIsLaunched",
            ["ec2:CreateTags"],
            [*created, template],
            {
                "StringEquals": {
                    **request_tags,
                    "ec2:CreateAction": ["CreateFleet", "CreateLaunchTemplate", "RunInstances"],
                },
                "StringLike": pool_request_tags,
            },
        ),
        Statement(
            "NameItsNodes",
            ["ec2:CreateTags"],
            [scope.arn("ec2", "instance/*")],
            {
                "StringEquals": owned_tags,
                "StringLike": pool_tags,
                "StringEqualsIfExists": {"aws:RequestTag/eks:eks-cluster-name": cluster},
                "ForAllValues:StringEquals": {
                    "aws:TagKeys": ["eks:eks-cluster-name", "karpenter.sh/nodeclaim", "Name"]
                },
            },
        ),
        Statement(
            "EndItsNodes",
            ["ec2:DeleteLaunchTemplate", "ec2:TerminateInstances"],
            [scope.arn("ec2", "instance/*"), template],
            {"StringEquals": owned_tags, "StringLike": pool_tags},
        ),
        Statement(
            "SeeTheMarket",
            [
                "ec2:DescribeCapacityReservations",
                "ec2:DescribeImages",
                "ec2:DescribeInstanceStatus",
                "ec2:DescribeInstances",
                "ec2:DescribeInstanceTypeOfferings",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeLaunchTemplates",
                "ec2:DescribePlacementGroups",
                "ec2:DescribeSecurityGroups",
                "ec2:DescribeSpotPriceHistory",
                "ec2:DescribeSubnets",
            ],
            ANY_RESOURCE,
            {"StringEquals": {"aws:RequestedRegion": scope.region}},
        ),
        Statement("SeePrices", ["pricing:GetProducts"], ANY_RESOURCE),
        Statement(
            "ReadImages",
            ["ssm:GetParameter"],
            [
                pulumi.Output.concat(
                    "arn:", scope.partition, ":ssm:", scope.region, "::parameter/aws/service/*"
                )
            ],
        ),
        Statement("HearNotices", ["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"], [queue_arn]),
        Statement(
            "HandOutOneRole",
            ["iam:PassRole"],
            [node_role_arn],
            {"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]}},
        ),
        Statement("SeeProfiles", ["iam:GetInstanceProfile"], [_profiles(scope)]),
        # Since 1.7 it lists profiles to delete, even if it created none (karpenter-provider-aws 8501). The
        # action has no resource type.
        Statement("ListProfiles", ["iam:ListInstanceProfiles"], ANY_RESOURCE),
        # Disks of nodes: EC2 decrypts with a grant of the caller of CreateFleet.
        *grant_key(scope),
        *use_key(scope, ["ec2", "sqs"]),
        Statement("FindTheApi", ["eks:DescribeCluster"], [scope.arn("eks", f"cluster/{cluster}")]),
    ]


def _public(scope: Scope, resource: str) -> pulumi.Output[str]:
    return pulumi.Output.concat("arn:", scope.partition, ":ec2:", scope.region, "::", resource)


def _profiles(scope: Scope) -> pulumi.Output[str]:
    return pulumi.Output.concat(
        "arn:", scope.partition, ":iam::", scope.account_id, f":instance-profile/{scope.prefix}*"
    )
