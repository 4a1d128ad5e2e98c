"""AWS managed policies that the stack attaches: the actions that it needs of them."""

from __future__ import annotations

from typing import Final

from gpu_spot.aws_check.assumption import Assumption
from gpu_spot.aws_check.aws_test_bed import AwsTestBed, Falsified

_MODULE: Final = "infra/iam/cluster_statements.py"
_REFERENCE: Final = "AWS managed policy reference guide"


def _needs(
    policy: str, purpose: str, source: str, *actions: str, used_by: str = _MODULE, name: str = ""
) -> Assumption:
    """Return an assumption: a managed policy allows these actions."""

    def test(test_bed: AwsTestBed) -> str:
        iam = test_bed.clients("iam")
        arn = f"arn:{test_bed.partition}:iam::aws:policy/{policy}"
        version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
        document = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]
        granting = [s["Action"] for s in document["Statement"] if s["Effect"] == "Allow"]
        lists = [[actions] if isinstance(actions, str) else actions for actions in granting]
        allowed = {action.lower() for listed in lists for action in listed}
        wildcards = tuple(action[:-1] for action in allowed if action.endswith("*"))
        missing = [
            action
            for action in actions
            if action.lower() not in allowed and not action.lower().startswith(wildcards or ("-",))
        ]
        if missing:
            raise Falsified(f"version {version} lacks {', '.join(missing)}")
        return f"version {version} allows {len(actions)} of {len(actions)}"

    short = policy.rpartition("/")[2]
    return Assumption(
        name=name or f"policy-{short.lower().replace('_', '-')}",
        statement=f"{short} allows {purpose}.",
        source=f"{_REFERENCE}, {short}; {source}",
        used_by=used_by,
        falsified_by=f"it lacks one of {', '.join(actions)}",
        run=test,
    )


MANAGED: Final = (
    _needs(
        "AmazonEKSWorkerNodePolicy",
        "nodeadm and the Pod Identity agent what a node needs to join",
        'EKS guide, "Amazon EKS node IAM role"; amazon-eks-ami, nodeadm/internal/api/status.go',
        "ec2:DescribeInstances",
        "eks-auth:AssumeRoleForPodIdentity",
    ),
    _needs(
        "AmazonEC2ContainerRegistryPullOnly",
        "nodes to pull images",
        'ECR user guide, "AWS managed policies"',
        "ecr:GetAuthorizationToken",
        "ecr:BatchGetImage",
        "ecr:GetDownloadUrlForLayer",
    ),
    _needs(
        "AmazonEKS_CNI_Policy",
        "the network plugin to give pods addresses",
        'EKS guide, "Configure Amazon VPC CNI plugin to use IRSA"',
        "ec2:AssignPrivateIpAddresses",
        "ec2:AttachNetworkInterface",
        "ec2:CreateNetworkInterface",
        "ec2:DescribeInstances",
    ),
    _needs(
        "service-role/AmazonEBSCSIDriverPolicy",
        "the EBS driver to create, attach and delete its volumes",
        'EKS guide, "Amazon EBS CSI driver"',
        "ec2:AttachVolume",
        "ec2:CreateVolume",
        "ec2:DeleteVolume",
    ),
    _needs(
        "AmazonEKSClusterPolicy",
        "the control plane to find and tag network interfaces and security groups",
        'EKS guide, "Amazon EKS cluster IAM role"',
        "ec2:CreateTags",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeSecurityGroups",
        "ec2:DescribeSubnets",
    ),
    _needs(
        "service-role/AmazonEC2SpotFleetTaggingRole",
        "a Spot Fleet to launch, tag and terminate instances and to pass their role",
        'EC2 user guide, "Spot Fleet permissions"',
        "ec2:CreateTags",
        "ec2:RunInstances",
        "ec2:TerminateInstances",
        "iam:PassRole",
        used_by="infra/components/capacity/spot_fleet.py",
    ),
)


def _tag_of_volumes(test_bed: AwsTestBed) -> str:
    iam = test_bed.clients("iam")
    arn = f"arn:{test_bed.partition}:iam::aws:policy/service-role/AmazonEBSCSIDriverPolicy"
    version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
    document = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]
    for statement in document["Statement"]:
        if "ec2:DeleteVolume" in str(statement["Action"]) and not statement.get("Condition"):
            raise Falsified(f"version {version} deletes any volume")
    return f"version {version} deletes volumes by their tags only"


DRIVER_TAGS: Final = Assumption(
    "driver-deletes-its-own-volumes",
    "AmazonEBSCSIDriverPolicy allows DeleteVolume only for volumes with the driver's tags.",
    f'{_REFERENCE}, AmazonEBSCSIDriverPolicy; EKS guide, "Amazon EBS CSI driver"',
    _MODULE,
    "it allows DeleteVolume without a condition",
    _tag_of_volumes,
)
