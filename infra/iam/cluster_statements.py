"""What a cluster of the stack's own takes: its control plane, its nodes, Karpenter, drivers."""

from __future__ import annotations

from typing import Final

import pulumi

from infra.iam.statement import ANY_RESOURCE, Statement, with_key
from infra.scope import Scope

CONTROL_PLANE: Final = ("AmazonEKSClusterPolicy",)
"""AWS's own policies, by name, of the control plane."""
NODE: Final = ("AmazonEKSWorkerNodeMinimalPolicy", "AmazonEC2ContainerRegistryPullOnly")
"""Of nodes: see themselves, hand pods their identities, pull images. The network plugin has a role of its own
(EKS guide, "Amazon EKS node IAM role")."""
NETWORK: Final = ("AmazonEKS_CNI_Policy",)
"""Of the network plugin (EKS guide, "Configure Amazon VPC CNI plugin")."""
VOLUMES: Final = ("service-role/AmazonEBSCSIDriverPolicy",)
"""Of the driver of EBS volumes, limited to those with its tag (EKS guide, "Amazon EBS CSI driver")."""

_CREATED: Final = (
    "fleet",
    "instance",
    "volume",
    "network-interface",
    "spot-instances-request",
)


def managed(scope: Scope, name: str) -> pulumi.Output[str]:
    """Return the ARN of a policy of AWS's own."""
    return pulumi.Output.concat("arn:", scope.partition, ":iam::aws:policy/", name)


def karpenter(
    scope: Scope, cluster: str, queue_arn: pulumi.Input[str], node_role_arn: pulumi.Input[str]
) -> list[Statement]:
    """What Karpenter's controller may do, for one cluster and with one role for nodes.

    Source: karpenter.sh, "CloudFormation" (1.14). Left out is what makes instance profiles: nodes have the
    stack's. What it makes has the cluster's tag from the call that makes it, and it changes nothing else.
    """
    owned = {f"aws:ResourceTag/kubernetes.io/cluster/{cluster}": "owned"}
    asked = {
        f"aws:RequestTag/kubernetes.io/cluster/{cluster}": "owned",
        "aws:RequestTag/eks:eks-cluster-name": cluster,
    }
    of_pool = {"aws:ResourceTag/karpenter.sh/nodepool": "*"}
    for_pool = {"aws:RequestTag/karpenter.sh/nodepool": "*"}
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
            {"StringEquals": owned, "StringLike": of_pool},
        ),
        Statement(
            "LaunchTagged",
            ["ec2:CreateFleet", "ec2:RunInstances"],
            created,
            {"StringEquals": asked, "StringLike": for_pool},
        ),
        Statement(
            "MakeItsTemplates",
            ["ec2:CreateLaunchTemplate"],
            [template],
            {"StringEquals": asked, "StringLike": for_pool},
        ),
        Statement(
            "TagWhatIsLaunched",
            ["ec2:CreateTags"],
            [*created, template],
            {
                "StringEquals": {
                    **asked,
                    "ec2:CreateAction": ["CreateFleet", "CreateLaunchTemplate", "RunInstances"],
                },
                "StringLike": for_pool,
            },
        ),
        Statement(
            "NameItsNodes",
            ["ec2:CreateTags"],
            [scope.arn("ec2", "instance/*")],
            {
                "StringEquals": owned,
                "StringLike": of_pool,
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
            {"StringEquals": owned, "StringLike": of_pool},
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
        # Since 1.7 it looks for profiles to collect, even if it made none (karpenter-provider-aws 8501). The
        # action knows no resource.
        Statement("ListProfiles", ["iam:ListInstanceProfiles"], ANY_RESOURCE),
        *with_key(scope, ["sqs"]),
        Statement("FindTheApi", ["eks:DescribeCluster"], [scope.arn("eks", f"cluster/{cluster}")]),
    ]


def _public(scope: Scope, resource: str) -> pulumi.Output[str]:
    return pulumi.Output.concat("arn:", scope.partition, ":ec2:", scope.region, "::", resource)


def _profiles(scope: Scope) -> pulumi.Output[str]:
    return pulumi.Output.concat(
        "arn:", scope.partition, ":iam::", scope.account_id, f":instance-profile/{scope.prefix}*"
    )
