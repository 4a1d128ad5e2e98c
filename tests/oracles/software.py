"""The actions that software on nodes and in pods calls, and the recorded documents of AWS's policies.

An action is needed if the software does its work here only with it. Documents of AWS managed policies change
without the stack: ``managed_policies.json`` has those that the stack attaches, with date and source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.iam import Request

RECORD: Final = Path(__file__).with_name("managed_policies.json")
_VOLUME: Final = "arn:aws:ec2:us-west-2:123456789012:volume/vol-1"
_SNAPSHOT: Final = "arn:aws:ec2:us-west-2::snapshot/snap-1"
_INSTANCE: Final = "arn:aws:ec2:us-west-2:123456789012:instance/i-1"
_INTERFACE: Final = "arn:aws:ec2:us-west-2:123456789012:network-interface/eni-1"
_OF_DRIVER: Final = {"aws:RequestTag/ebs.csi.aws.com/cluster": ["true"]}
_MADE_BY_DRIVER: Final = {"ec2:ResourceTag/ebs.csi.aws.com/cluster": ["true"]}


@dataclass(frozen=True)
class Software:
    """``needed`` are requests; one with a bare action is judged by its action alone.

    ``optional`` are actions that it calls in other configurations than the stack's.
    """

    source: str
    needed: tuple[Request | str, ...]
    optional: frozenset[str] = frozenset()

    @property
    def actions(self) -> set[str]:
        """Every action that a role of the software may have."""
        return {need if isinstance(need, str) else need.action for need in self.needed} | self.optional


@cache
def managed_policies() -> Mapping[str, Mapping[str, Any]]:
    """Return the documents by the policy's name with its path."""
    recorded: Mapping[str, Any] = json.loads(RECORD.read_text("utf-8"))
    return {name: one["document"] for name, one in recorded["policies"].items()}


CONTROL_PLANE: Final = Software(
    'EKS guide, "Amazon EKS cluster IAM role": the minimal permissions',
    (
        Request("ec2:CreateTags", _INSTANCE, {"aws:TagKeys": ["kubernetes.io/cluster/research"]}),
        Request("ec2:DescribeAvailabilityZones"),
        Request("ec2:DescribeDhcpOptions"),
        Request("ec2:DescribeInstances"),
        Request("ec2:DescribeInstanceTopology"),
        Request("ec2:DescribeNetworkInterfaces"),
        Request("ec2:DescribeVpcs"),
        Request("kms:DescribeKey"),
    ),
)
NODE: Final = Software(
    # Without the first the kubelet does not start; without the second it accepts more pods than addresses.
    "amazon-eks-ami 81fec2e, nodeadm: internal/api/status.go, internal/kubelet/config.go; EKS guide, "
    '"Amazon EKS node IAM role": Pod Identity agent, images',
    (
        Request("ec2:DescribeInstances"),
        Request("ec2:DescribeInstanceTypes"),
        Request("eks-auth:AssumeRoleForPodIdentity"),
        Request("ecr:GetAuthorizationToken"),
        Request("ecr:BatchGetImage", "arn:aws:ecr:us-west-2:123456789012:repository/ocr"),
        Request("ecr:GetDownloadUrlForLayer", "arn:aws:ecr:us-west-2:123456789012:repository/ocr"),
    ),
)
NETWORK_PLUGIN: Final = Software(
    'amazon-vpc-cni-k8s, docs/iam-policy.md, "IPv4 mode"',
    (
        *(
            Request(f"ec2:{name}")
            for name in (
                *("AssignPrivateIpAddresses", "AttachNetworkInterface", "CreateNetworkInterface"),
                *("DeleteNetworkInterface", "DescribeInstances", "DescribeTags", "DescribeSubnets"),
                *("DescribeNetworkInterfaces", "DescribeInstanceTypes", "DetachNetworkInterface"),
                *("ModifyNetworkInterfaceAttribute", "UnassignPrivateIpAddresses"),
            )
        ),
        Request("ec2:CreateTags", _INTERFACE),
    ),
)
VOLUME_DRIVER: Final = Software(
    "aws-ebs-csi-driver, docs/example-iam-policy.json: a volume made of a snapshot for each pod with "
    "`datasets`",
    (
        *(
            Request(f"ec2:{name}")
            for name in (
                *("DescribeAvailabilityZones", "DescribeInstances", "DescribeInstanceTypes"),
                *("DescribeSnapshots", "DescribeVolumes", "DescribeVolumesModifications"),
                "DescribeVolumeStatus",
            )
        ),
        Request("ec2:CreateVolume", _SNAPSHOT, _MADE_BY_DRIVER),
        Request("ec2:CreateVolume", _VOLUME, _OF_DRIVER),
        Request("ec2:CreateTags", _VOLUME, {"ec2:CreateAction": ["CreateVolume"]}),
        Request("ec2:AttachVolume", _VOLUME, _MADE_BY_DRIVER),
        Request("ec2:AttachVolume", _INSTANCE),
        Request("ec2:DetachVolume", _VOLUME, _MADE_BY_DRIVER),
        Request("ec2:DetachVolume", _INSTANCE),
        Request("ec2:DeleteVolume", _VOLUME, _MADE_BY_DRIVER),
    ),
)
FILE_DRIVER: Final = Software(
    'EFS user guide, "Using IAM to control file system data access": static volumes need no more',
    ("elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"),
)
KARPENTER: Final = Software(
    'karpenter.sh 1.14, "CloudFormation": KarpenterControllerPolicy. Nodes have an instance profile of the '
    "stack's, so that it makes none (pkg/controllers/nodeclass/instanceprofile.go)",
    (
        *(
            f"ec2:{name}"
            for name in (
                *("CreateFleet", "CreateLaunchTemplate", "CreateTags", "DeleteLaunchTemplate"),
                *("DescribeCapacityReservations", "DescribeImages", "DescribeInstanceStatus"),
                *("DescribeInstanceTypeOfferings", "DescribeInstanceTypes", "DescribeInstances"),
                *("DescribeLaunchTemplates", "DescribePlacementGroups", "DescribeSecurityGroups"),
                *("DescribeSpotPriceHistory", "DescribeSubnets", "RunInstances", "TerminateInstances"),
            )
        ),
        *("eks:DescribeCluster", "iam:GetInstanceProfile", "iam:ListInstanceProfiles", "iam:PassRole"),
        *("pricing:GetProducts", "ssm:GetParameter"),
        *("sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"),
    ),
)
KEDA: Final = Software(
    'keda.sh, "AWS CloudWatch"; keda 2.21, pkg/scalers/aws_cloudwatch_scaler.go',
    ("cloudwatch:GetMetricData",),
)
SPOT_FLEET: Final = Software(
    'EC2 user guide, "Spot Fleet permissions": the service launches, tags and terminates',
    (
        Request("ec2:RunInstances", _INSTANCE),
        Request("ec2:CreateTags", _INSTANCE),
        Request("ec2:RequestSpotInstances"),
        Request("ec2:TerminateInstances", _INSTANCE),
        Request("ec2:DescribeImages"),
        Request("ec2:DescribeInstanceStatus"),
        Request("ec2:DescribeSubnets"),
        Request(
            "iam:PassRole",
            "arn:aws:iam::123456789012:role/instance",
            {"iam:PassedToService": ["ec2.amazonaws.com"]},
        ),
    ),
)
SYSTEMS_MANAGER_AGENT: Final = Software(
    'Systems Manager guide, "Create a custom IAM role for Session Manager"',
    (
        Request("ssm:UpdateInstanceInformation"),
        Request("ssmmessages:CreateControlChannel"),
        Request("ssmmessages:CreateDataChannel"),
        Request("ssmmessages:OpenControlChannel"),
        Request("ssmmessages:OpenDataChannel"),
    ),
)
CLOUDWATCH_AGENT: Final = Software(
    # No DescribeTags: it is for the dimension AutoScalingGroupName; no DescribeVolumes: for volume IDs.
    'CloudWatch user guide, "Create IAM roles and users for use with the CloudWatch agent"; its log group '
    "exists, with its retention",
    (
        Request("cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": ["gpu-spot/instances"]}),
        *("logs:CreateLogStream", "logs:PutLogEvents", "ssm:GetParameter"),
    ),
    frozenset({"logs:DescribeLogStreams"}),
)

SPARE: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "AmazonEKSClusterPolicy": (
        "load balancers, routes and volumes of Kubernetes' legacy cloud provider; EKS extends the policy "
        "when the control plane needs more, without a change of the stack",
        frozenset(
            f"{service}:{name}"
            for service, names in {
                "autoscaling": "DescribeAutoScalingGroups UpdateAutoScalingGroup",
                "ec2": "AttachVolume AuthorizeSecurityGroupIngress CreateRoute CreateSecurityGroup "
                "CreateVolume DeleteNetworkInterface DeleteRoute DeleteSecurityGroup DeleteVolume "
                "DescribeAccountAttributes DescribeAddresses DescribeInternetGateways DescribeRouteTables "
                "DescribeSecurityGroups DescribeSubnets DescribeVolumes DescribeVolumesModifications "
                "DetachVolume ModifyInstanceAttribute ModifyVolume RevokeSecurityGroupIngress",
                "elasticloadbalancing": "AddTags ApplySecurityGroupsToLoadBalancer "
                "AttachLoadBalancerToSubnets ConfigureHealthCheck CreateListener CreateLoadBalancer "
                "CreateLoadBalancerListeners CreateLoadBalancerPolicy CreateTargetGroup DeleteListener "
                "DeleteLoadBalancer DeleteLoadBalancerListeners DeleteTargetGroup "
                "DeregisterInstancesFromLoadBalancer DeregisterTargets DescribeListeners "
                "DescribeLoadBalancerAttributes DescribeLoadBalancerPolicies DescribeLoadBalancers "
                "DescribeTargetGroupAttributes DescribeTargetGroups DescribeTargetHealth "
                "DetachLoadBalancerFromSubnets ModifyListener ModifyLoadBalancerAttributes "
                "ModifyTargetGroup ModifyTargetGroupAttributes RegisterInstancesWithLoadBalancer "
                "RegisterTargets SetLoadBalancerPoliciesForBackendServer "
                "SetLoadBalancerPoliciesOfListener",
                "iam": "CreateServiceLinkedRole",
            }.items()
            for name in names.split()
        ),
    ),
    "AmazonEKSWorkerNodePolicy": (
        "reads of EC2 and of the cluster, by bootstrap scripts before AL2023; EKS extends the policy when "
        "nodes need more",
        frozenset(
            {
                *("ec2:DescribeRouteTables", "ec2:DescribeSecurityGroups", "ec2:DescribeSubnets"),
                *("ec2:DescribeVolumes", "ec2:DescribeVolumesModifications", "ec2:DescribeVpcs"),
                "eks:DescribeCluster",
            }
        ),
    ),
    "AmazonEC2ContainerRegistryPullOnly": (
        "images of a pull-through cache",
        frozenset({"ecr:BatchImportUpstreamImage"}),
    ),
    "AmazonEKS_CNI_Policy": (
        "choice of subnets and security groups by the plugin, off by default",
        frozenset({"ec2:DescribeSecurityGroups"}),
    ),
    "AmazonEBSCSIDriverPolicyV2": (
        "snapshots, clones and changes of volumes, which the stack's objects do not ask for; limited to the "
        "driver's volumes",
        frozenset(
            f"ec2:{name}"
            for name in (
                *("CopyVolumes", "CreateSnapshot", "DeleteSnapshot", "DeleteTags"),
                *("EnableFastSnapshotRestores", "LockSnapshot", "ModifyVolume"),
            )
        ),
    ),
    "service-role/AmazonEC2SpotFleetTaggingRole": (
        "load balancers, which no fleet of the stack has",
        frozenset(
            {"elasticloadbalancing:RegisterInstancesWithLoadBalancer", "elasticloadbalancing:RegisterTargets"}
        ),
    ),
}
"""Actions of AWS's policies that nothing here needs, with the reason why the policy is attached anyway."""
