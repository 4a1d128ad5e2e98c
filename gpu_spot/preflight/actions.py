"""IAM actions that a deployment needs, by resource type.

Listed are the actions that create a resource and those by which the provider reads it; updates and deletions
need more. Source: the provider's resources and the service authorization reference.
"""

from __future__ import annotations

from typing import Final

_TABLE: Final = """
autoscaling/group:Group  autoscaling:CreateAutoScalingGroup CreateOrUpdateTags DescribeAutoScalingGroups
    DescribeScalingActivities PutLifecycleHook PutWarmPool SuspendProcesses ec2:RunInstances
autoscaling/lifecycleHook:LifecycleHook  autoscaling:DescribeLifecycleHooks PutLifecycleHook
budgets/budget:Budget  budgets:ModifyBudget TagResource ViewBudget
cloudwatch/dashboard:Dashboard  cloudwatch:GetDashboard PutDashboard
cloudwatch/eventRule:EventRule  events:DescribeRule PutRule TagResource
cloudwatch/eventTarget:EventTarget  events:ListTargetsByRule PutTargets
cloudwatch/logGroup:LogGroup  logs:CreateLogGroup DescribeLogGroups PutRetentionPolicy TagResource
cloudwatch/logMetricFilter:LogMetricFilter  logs:DescribeMetricFilters PutMetricFilter
cloudwatch/metricAlarm:MetricAlarm  cloudwatch:DescribeAlarms PutMetricAlarm TagResource
dynamodb/table:Table  dynamodb:CreateTable DescribeTable TagResource UpdateContinuousBackups
    UpdateTimeToLive
ec2/defaultSecurityGroup:DefaultSecurityGroup  ec2:DescribeSecurityGroups RevokeSecurityGroupEgress
    RevokeSecurityGroupIngress
ec2/eip:Eip  ec2:AllocateAddress DescribeAddresses CreateTags
ec2/flowLog:FlowLog  ec2:CreateFlowLogs DescribeFlowLogs CreateTags
ec2/internetGateway:InternetGateway  ec2:AttachInternetGateway CreateInternetGateway CreateTags
ec2/launchTemplate:LaunchTemplate  ec2:CreateLaunchTemplate DescribeLaunchTemplateVersions
    DescribeLaunchTemplates CreateTags ssm:GetParameters
ec2/natGateway:NatGateway  ec2:CreateNatGateway DescribeNatGateways CreateTags
ec2/placementGroup:PlacementGroup  ec2:CreatePlacementGroup DescribePlacementGroups CreateTags
ec2/route:Route  ec2:CreateRoute DescribeRouteTables
ec2/routeTable:RouteTable  ec2:CreateRouteTable DescribeRouteTables CreateTags
ec2/routeTableAssociation:RouteTableAssociation  ec2:AssociateRouteTable
ec2/securityGroup:SecurityGroup  ec2:CreateSecurityGroup DescribeSecurityGroups CreateTags
ec2/spotFleetRequest:SpotFleetRequest  ec2:DescribeSpotFleetRequests RequestSpotFleet RunInstances
    CreateTags iam:PassRole
ec2/subnet:Subnet  ec2:CreateSubnet DescribeSubnets ModifySubnetAttribute CreateTags
ec2/vpc:Vpc  ec2:CreateVpc DescribeVpcs ModifyVpcAttribute CreateTags
ec2/vpcEndpoint:VpcEndpoint  ec2:CreateVpcEndpoint DescribeVpcEndpoints CreateTags
ecr/lifecyclePolicy:LifecyclePolicy  ecr:GetLifecyclePolicy PutLifecyclePolicy
ecr/repository:Repository  ecr:CreateRepository DescribeRepositories TagResource
efs/accessPoint:AccessPoint  elasticfilesystem:CreateAccessPoint DescribeAccessPoints TagResource
efs/fileSystem:FileSystem  elasticfilesystem:CreateFileSystem DescribeFileSystems PutLifecycleConfiguration
    TagResource iam:CreateServiceLinkedRole
efs/fileSystemPolicy:FileSystemPolicy  elasticfilesystem:PutFileSystemPolicy
efs/mountTarget:MountTarget  ec2:CreateNetworkInterface elasticfilesystem:CreateMountTarget
    DescribeMountTargets
eks/accessEntry:AccessEntry  eks:CreateAccessEntry DescribeAccessEntry TagResource
eks/accessPolicyAssociation:AccessPolicyAssociation  eks:AssociateAccessPolicy ListAssociatedAccessPolicies
eks/addon:Addon  eks:CreateAddon DescribeAddon DescribeAddonVersions TagResource
eks/cluster:Cluster  eks:CreateCluster DescribeCluster TagResource iam:CreateServiceLinkedRole PassRole
    kms:CreateGrant DescribeKey
eks/nodeGroup:NodeGroup  ec2:RunInstances eks:CreateNodegroup DescribeNodegroup TagResource
    iam:CreateServiceLinkedRole PassRole
eks/podIdentityAssociation:PodIdentityAssociation  eks:CreatePodIdentityAssociation
    DescribePodIdentityAssociation TagResource iam:PassRole
iam/instanceProfile:InstanceProfile  iam:AddRoleToInstanceProfile CreateInstanceProfile GetInstanceProfile
    PassRole TagInstanceProfile
iam/openIdConnectProvider:OpenIdConnectProvider  iam:CreateOpenIDConnectProvider GetOpenIDConnectProvider
    TagOpenIDConnectProvider
fis/experimentTemplate:ExperimentTemplate  fis:CreateExperimentTemplate GetExperimentTemplate TagResource
    iam:PassRole
iam/role:Role  iam:CreateRole GetRole TagRole
iam/policy:Policy  iam:CreatePolicy GetPolicy GetPolicyVersion TagPolicy
iam/rolePolicy:RolePolicy  iam:GetRolePolicy PutRolePolicy
iam/rolePolicyAttachment:RolePolicyAttachment  iam:AttachRolePolicy ListAttachedRolePolicies
kms/key:Key  kms:CreateKey DescribeKey EnableKeyRotation GetKeyPolicy GetKeyRotationStatus ListResourceTags
    TagResource
lambda/eventSourceMapping:EventSourceMapping  lambda:CreateEventSourceMapping GetEventSourceMapping
lambda/function:Function  iam:PassRole lambda:CreateFunction GetFunction TagResource
lambda/functionEventInvokeConfig:FunctionEventInvokeConfig  lambda:GetFunctionEventInvokeConfig
    PutFunctionEventInvokeConfig
lambda/layerVersion:LayerVersion  lambda:GetLayerVersion PublishLayerVersion
lambda/permission:Permission  lambda:AddPermission GetPolicy
lb/listener:Listener  elasticloadbalancing:AddTags CreateListener DescribeListenerAttributes
    DescribeListeners DescribeTags
lb/loadBalancer:LoadBalancer  elasticloadbalancing:AddTags CreateLoadBalancer DescribeCapacityReservation
    DescribeLoadBalancerAttributes DescribeLoadBalancers DescribeTags ModifyLoadBalancerAttributes
    iam:CreateServiceLinkedRole
lb/targetGroup:TargetGroup  elasticloadbalancing:AddTags CreateTargetGroup DescribeTags
    DescribeTargetGroupAttributes DescribeTargetGroups ModifyTargetGroupAttributes
mq/broker:Broker  ec2:CreateNetworkInterface CreateVpcEndpoint iam:CreateServiceLinkedRole mq:CreateBroker
    CreateTags DescribeBroker
route53/record:Record  route53:ChangeResourceRecordSets GetChange GetHostedZone ListResourceRecordSets
scheduler/schedule:Schedule  scheduler:CreateSchedule GetSchedule iam:PassRole
secretsmanager/secret:Secret  secretsmanager:CreateSecret DescribeSecret GetRandomPassword GetResourcePolicy
    TagResource
secretsmanager/secretVersion:SecretVersion  secretsmanager:GetSecretValue PutSecretValue
s3/bucket:Bucket  s3:CreateBucket ListBucket PutBucketTagging
s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration  s3:PutLifecycleConfiguration
s3/bucketObjectv2:BucketObjectv2  s3:GetObject PutObject PutObjectTagging
s3/bucketOwnershipControls:BucketOwnershipControls  s3:PutBucketOwnershipControls
s3/bucketPolicy:BucketPolicy  s3:PutBucketPolicy
s3/bucketPublicAccessBlock:BucketPublicAccessBlock  s3:PutBucketPublicAccessBlock
s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration
    s3:PutEncryptionConfiguration
s3/bucketVersioning:BucketVersioning  s3:PutBucketVersioning
sns/topic:Topic  sns:CreateTopic GetTopicAttributes TagResource
sns/topicPolicy:TopicPolicy  sns:SetTopicAttributes
sns/topicSubscription:TopicSubscription  sns:GetSubscriptionAttributes Subscribe
sqs/queue:Queue  sqs:CreateQueue GetQueueAttributes TagQueue
sqs/queuePolicy:QueuePolicy  sqs:SetQueueAttributes
ssm/document:Document  ssm:AddTagsToResource CreateDocument DescribeDocument DescribeDocumentPermission
    GetDocument
ssm/parameter:Parameter  ssm:AddTagsToResource DescribeParameters GetParameter PutParameter
vpc/securityGroupEgressRule:SecurityGroupEgressRule  ec2:AuthorizeSecurityGroupEgress CreateTags
vpc/securityGroupIngressRule:SecurityGroupIngressRule  ec2:AuthorizeSecurityGroupIngress CreateTags
"""
"""By type without its package; a service stands before the first of its actions."""


def _actions() -> dict[str, tuple[str, ...]]:
    rows: dict[str, tuple[str, ...]] = {}
    type_ = service = ""
    for word in _TABLE.split():
        if "/" in word:
            type_, rows[f"aws:{word}"] = f"aws:{word}", ()
            continue
        prefix, _, name = word.rpartition(":")
        service = prefix or service
        rows[type_] += (f"{service}:{name}",)
    return rows


ACTIONS: Final = _actions()
"""Names of actions by Pulumi type.

``ssm:GetParameters`` of a launch template is for an image behind ``resolve:ssm:``.
"""
