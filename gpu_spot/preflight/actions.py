"""IAM actions that a deployment needs, by resource type.

Listed are the actions that create a resource and those by which the provider reads it; updates and deletions
need more. Source: the provider's resources and the service authorization reference.
"""

from __future__ import annotations

from typing import Final

_TAGS: Final = "ec2:CreateTags"

ACTIONS: Final[dict[str, tuple[str, ...]]] = {
    "aws:autoscaling/group:Group": (
        "autoscaling:CreateAutoScalingGroup",
        "autoscaling:CreateOrUpdateTags",
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:DescribeScalingActivities",
        "autoscaling:PutLifecycleHook",
        "autoscaling:PutWarmPool",
        "autoscaling:SuspendProcesses",
        "ec2:RunInstances",
    ),
    "aws:budgets/budget:Budget": ("budgets:ModifyBudget", "budgets:TagResource", "budgets:ViewBudget"),
    "aws:cloudwatch/dashboard:Dashboard": ("cloudwatch:GetDashboard", "cloudwatch:PutDashboard"),
    "aws:cloudwatch/eventRule:EventRule": ("events:DescribeRule", "events:PutRule", "events:TagResource"),
    "aws:cloudwatch/eventTarget:EventTarget": ("events:ListTargetsByRule", "events:PutTargets"),
    "aws:cloudwatch/logGroup:LogGroup": (
        "logs:CreateLogGroup",
        "logs:DescribeLogGroups",
        "logs:PutRetentionPolicy",
        "logs:TagResource",
    ),
    "aws:cloudwatch/logMetricFilter:LogMetricFilter": (
        "logs:DescribeMetricFilters",
        "logs:PutMetricFilter",
    ),
    "aws:cloudwatch/metricAlarm:MetricAlarm": (
        "cloudwatch:DescribeAlarms",
        "cloudwatch:PutMetricAlarm",
        "cloudwatch:TagResource",
    ),
    "aws:dynamodb/table:Table": (
        "dynamodb:CreateTable",
        "dynamodb:DescribeTable",
        "dynamodb:TagResource",
        "dynamodb:UpdateContinuousBackups",
        "dynamodb:UpdateTimeToLive",
    ),
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": (
        "ec2:DescribeSecurityGroups",
        "ec2:RevokeSecurityGroupEgress",
        "ec2:RevokeSecurityGroupIngress",
    ),
    "aws:ec2/eip:Eip": ("ec2:AllocateAddress", "ec2:DescribeAddresses", _TAGS),
    "aws:ec2/flowLog:FlowLog": ("ec2:CreateFlowLogs", "ec2:DescribeFlowLogs", _TAGS),
    "aws:ec2/internetGateway:InternetGateway": (
        "ec2:AttachInternetGateway",
        "ec2:CreateInternetGateway",
        _TAGS,
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": (
        "ec2:CreateLaunchTemplate",
        "ec2:DescribeLaunchTemplateVersions",
        "ec2:DescribeLaunchTemplates",
        "ssm:GetParameters",  # of an image behind `resolve:ssm:`
        _TAGS,
    ),
    "aws:ec2/natGateway:NatGateway": ("ec2:CreateNatGateway", "ec2:DescribeNatGateways", _TAGS),
    "aws:ec2/route:Route": ("ec2:CreateRoute", "ec2:DescribeRouteTables"),
    "aws:ec2/routeTable:RouteTable": ("ec2:CreateRouteTable", "ec2:DescribeRouteTables", _TAGS),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": ("ec2:AssociateRouteTable",),
    "aws:ec2/securityGroup:SecurityGroup": ("ec2:CreateSecurityGroup", "ec2:DescribeSecurityGroups", _TAGS),
    "aws:ec2/spotFleetRequest:SpotFleetRequest": (
        "ec2:DescribeSpotFleetRequests",
        "ec2:RequestSpotFleet",
        "ec2:RunInstances",
        "iam:PassRole",
        _TAGS,
    ),
    "aws:ec2/subnet:Subnet": ("ec2:CreateSubnet", "ec2:DescribeSubnets", "ec2:ModifySubnetAttribute", _TAGS),
    "aws:ec2/vpc:Vpc": ("ec2:CreateVpc", "ec2:DescribeVpcs", "ec2:ModifyVpcAttribute", _TAGS),
    "aws:ec2/vpcEndpoint:VpcEndpoint": ("ec2:CreateVpcEndpoint", "ec2:DescribeVpcEndpoints", _TAGS),
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": ("ecr:GetLifecyclePolicy", "ecr:PutLifecyclePolicy"),
    "aws:ecr/repository:Repository": (
        "ecr:CreateRepository",
        "ecr:DescribeRepositories",
        "ecr:TagResource",
    ),
    "aws:efs/accessPoint:AccessPoint": (
        "elasticfilesystem:CreateAccessPoint",
        "elasticfilesystem:DescribeAccessPoints",
        "elasticfilesystem:TagResource",
    ),
    "aws:efs/fileSystem:FileSystem": (
        "elasticfilesystem:CreateFileSystem",
        "elasticfilesystem:DescribeFileSystems",
        "elasticfilesystem:PutLifecycleConfiguration",
        "elasticfilesystem:TagResource",
        "iam:CreateServiceLinkedRole",
    ),
    "aws:efs/fileSystemPolicy:FileSystemPolicy": ("elasticfilesystem:PutFileSystemPolicy",),
    "aws:efs/mountTarget:MountTarget": (
        "ec2:CreateNetworkInterface",
        "elasticfilesystem:CreateMountTarget",
        "elasticfilesystem:DescribeMountTargets",
    ),
    "aws:eks/accessEntry:AccessEntry": (
        "eks:CreateAccessEntry",
        "eks:DescribeAccessEntry",
        "eks:TagResource",
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": (
        "eks:AssociateAccessPolicy",
        "eks:ListAssociatedAccessPolicies",
    ),
    "aws:eks/addon:Addon": ("eks:CreateAddon", "eks:DescribeAddon", "eks:TagResource"),
    "aws:eks/cluster:Cluster": (
        "eks:CreateCluster",
        "eks:DescribeCluster",
        "eks:TagResource",
        "iam:CreateServiceLinkedRole",
        "iam:PassRole",
        "kms:CreateGrant",
        "kms:DescribeKey",
    ),
    "aws:eks/nodeGroup:NodeGroup": (
        "ec2:RunInstances",
        "eks:CreateNodegroup",
        "eks:DescribeNodegroup",
        "eks:TagResource",
        "iam:CreateServiceLinkedRole",
        "iam:PassRole",
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": (
        "eks:CreatePodIdentityAssociation",
        "eks:DescribePodIdentityAssociation",
        "eks:TagResource",
        "iam:PassRole",
    ),
    "aws:iam/instanceProfile:InstanceProfile": (
        "iam:AddRoleToInstanceProfile",
        "iam:CreateInstanceProfile",
        "iam:GetInstanceProfile",
        "iam:PassRole",
        "iam:TagInstanceProfile",
    ),
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": (
        "iam:CreateOpenIDConnectProvider",
        "iam:GetOpenIDConnectProvider",
        "iam:TagOpenIDConnectProvider",
    ),
    "aws:fis/experimentTemplate:ExperimentTemplate": (
        "fis:CreateExperimentTemplate",
        "fis:GetExperimentTemplate",
        "fis:TagResource",
        "iam:PassRole",
    ),
    "aws:iam/role:Role": ("iam:CreateRole", "iam:GetRole", "iam:TagRole"),
    "aws:iam/policy:Policy": ("iam:CreatePolicy", "iam:GetPolicy", "iam:GetPolicyVersion", "iam:TagPolicy"),
    "aws:iam/rolePolicy:RolePolicy": ("iam:GetRolePolicy", "iam:PutRolePolicy"),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": (
        "iam:AttachRolePolicy",
        "iam:ListAttachedRolePolicies",
    ),
    "aws:kms/key:Key": (
        "kms:CreateKey",
        "kms:DescribeKey",
        "kms:EnableKeyRotation",
        "kms:GetKeyPolicy",
        "kms:GetKeyRotationStatus",
        "kms:ListResourceTags",
        "kms:TagResource",
    ),
    "aws:lambda/eventSourceMapping:EventSourceMapping": (
        "lambda:CreateEventSourceMapping",
        "lambda:GetEventSourceMapping",
    ),
    "aws:lambda/function:Function": (
        "iam:PassRole",
        "lambda:CreateFunction",
        "lambda:GetFunction",
        "lambda:TagResource",
    ),
    "aws:lambda/functionEventInvokeConfig:FunctionEventInvokeConfig": (
        "lambda:GetFunctionEventInvokeConfig",
        "lambda:PutFunctionEventInvokeConfig",
    ),
    "aws:lambda/layerVersion:LayerVersion": ("lambda:GetLayerVersion", "lambda:PublishLayerVersion"),
    "aws:lambda/permission:Permission": ("lambda:AddPermission", "lambda:GetPolicy"),
    "aws:mq/broker:Broker": (
        "ec2:CreateNetworkInterface",
        "ec2:CreateVpcEndpoint",
        "iam:CreateServiceLinkedRole",
        "mq:CreateBroker",
        "mq:CreateTags",
        "mq:DescribeBroker",
    ),
    "aws:secretsmanager/secret:Secret": (
        "secretsmanager:CreateSecret",
        "secretsmanager:DescribeSecret",
        "secretsmanager:GetRandomPassword",
        "secretsmanager:GetResourcePolicy",
        "secretsmanager:TagResource",
    ),
    "aws:secretsmanager/secretVersion:SecretVersion": (
        "secretsmanager:GetSecretValue",
        "secretsmanager:PutSecretValue",
    ),
    "aws:s3/bucket:Bucket": ("s3:CreateBucket", "s3:ListBucket", "s3:PutBucketTagging"),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": ("s3:PutLifecycleConfiguration",),
    "aws:s3/bucketObjectv2:BucketObjectv2": ("s3:GetObject", "s3:PutObject", "s3:PutObjectTagging"),
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": ("s3:PutBucketOwnershipControls",),
    "aws:s3/bucketPolicy:BucketPolicy": ("s3:PutBucketPolicy",),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": ("s3:PutBucketPublicAccessBlock",),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": (
        "s3:PutEncryptionConfiguration",
    ),
    "aws:s3/bucketVersioning:BucketVersioning": ("s3:PutBucketVersioning",),
    "aws:sns/topic:Topic": ("sns:CreateTopic", "sns:GetTopicAttributes", "sns:TagResource"),
    "aws:sns/topicPolicy:TopicPolicy": ("sns:SetTopicAttributes",),
    "aws:sns/topicSubscription:TopicSubscription": ("sns:GetSubscriptionAttributes", "sns:Subscribe"),
    "aws:sqs/queue:Queue": ("sqs:CreateQueue", "sqs:GetQueueAttributes", "sqs:TagQueue"),
    "aws:sqs/queuePolicy:QueuePolicy": ("sqs:SetQueueAttributes",),
    "aws:ssm/document:Document": (
        "ssm:AddTagsToResource",
        "ssm:CreateDocument",
        "ssm:DescribeDocument",
        "ssm:DescribeDocumentPermission",
        "ssm:GetDocument",
    ),
    "aws:ssm/parameter:Parameter": (
        "ssm:AddTagsToResource",
        "ssm:DescribeParameters",
        "ssm:GetParameter",
        "ssm:PutParameter",
    ),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": ("ec2:AuthorizeSecurityGroupEgress", _TAGS),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": (
        "ec2:AuthorizeSecurityGroupIngress",
        _TAGS,
    ),
}
