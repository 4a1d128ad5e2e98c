"""What the providers replace, per type, with the provider's file that says so; all else is changed in place.

A row is *type | file in hashicorp/terraform-provider-aws, internal/service | inputs with ForceNew or
RequiresReplace | inputs changed in place that AWS's own schema has not, or not in this shape*.
``tests/oracles/test_replacements.py`` holds every declared input of every type against AWS's resource schemas
(``createOnlyProperties``): an unknown type or input fails. Read in the provider's source on
29 November 2026: ``group.go``, ``spot_fleet_request.go``, ``cluster.go``, ``document.go``,
``lifecycle_policy.go``, ``load_balancer.go``, ``vpc_security_group_ingress_rule.go``; the other rows are what
AWS's schemas say, or the provider's documented ``ForceNew`` where these have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpu_spot.review.value_diff import value_differences


@dataclass(frozen=True)
class ReplacedBy:
    """What replaces a resource of a type: ``inputs``, of which one may be a path; ``source`` says so."""

    source: str
    inputs: frozenset[str]
    in_place: frozenset[str]


_ROWS: Final = """
autoscaling/group:Group | autoscaling/group.go | name initialLifecycleHooks |
autoscaling/lifecycleHook:LifecycleHook | autoscaling/lifecycle_hook.go | name autoscalingGroupName |
budgets/budget:Budget | budgets/budget.go | name |
cloudwatch/dashboard:Dashboard | cloudwatch/dashboard.go | dashboardName |
cloudwatch/eventRule:EventRule | events/rule.go | name eventBusName |
cloudwatch/eventTarget:EventTarget | events/target.go | rule targetId eventBusName |
cloudwatch/logGroup:LogGroup | logs/group.go | name |
cloudwatch/logMetricFilter:LogMetricFilter | logs/metric_filter.go | name logGroupName |
cloudwatch/metricAlarm:MetricAlarm | cloudwatch/metric_alarm.go | name |
cloudwatch/queryDefinition:QueryDefinition | logs/query_definition.go | |
dynamodb/table:Table | dynamodb/table.go | name hashKey rangeKey |
ec2/defaultSecurityGroup:DefaultSecurityGroup | ec2/vpc_default_security_group.go | vpcId |
ec2/eip:Eip | ec2/ec2_eip.go | domain |
ec2/flowLog:FlowLog | ec2/vpc_flow_log.go | iamRoleArn logDestination trafficType vpcId |
ec2/internetGateway:InternetGateway | ec2/vpc_internet_gateway.go | |
ec2/launchTemplate:LaunchTemplate | ec2/ec2_launch_template.go | name |
ec2/natGateway:NatGateway | ec2/vpc_nat_gateway.go | allocationId subnetId |
ec2/placementGroup:PlacementGroup | ec2/ec2_placement_group.go | name strategy |
ec2/route:Route | ec2/vpc_route.go | destinationCidrBlock routeTableId |
ec2/routeTable:RouteTable | ec2/vpc_route_table.go | vpcId |
ec2/routeTableAssociation:RouteTableAssociation | ec2/vpc_route_table_association.go | subnetId | routeTableId
ec2/securityGroup:SecurityGroup | ec2/vpc_security_group.go | description name vpcId |
ec2/spotFleetRequest:SpotFleetRequest | ec2/ec2_spot_fleet_request.go | allocationStrategy fleetType \
iamFleetRole instanceInterruptionBehaviour instancePoolsToUseCount launchTemplateConfigs loadBalancers \
onDemandAllocationStrategy replaceUnhealthyInstances spotPrice targetGroupArns |
ec2/subnet:Subnet | ec2/vpc_subnet.go | availabilityZone cidrBlock vpcId |
ec2/vpc:Vpc | ec2/vpc_.go | cidrBlock |
ec2/vpcEndpoint:VpcEndpoint | ec2/vpc_endpoint.go | serviceName vpcEndpointType vpcId |
ecr/lifecyclePolicy:LifecyclePolicy | ecr/lifecycle_policy.go | policy repository |
ecr/repository:Repository | ecr/repository.go | name encryptionConfigurations |
efs/accessPoint:AccessPoint | efs/access_point.go | fileSystemId posixUser rootDirectory |
efs/fileSystem:FileSystem | efs/file_system.go | encrypted kmsKeyId performanceMode |
efs/fileSystemPolicy:FileSystemPolicy | efs/file_system_policy.go | fileSystemId |
efs/mountTarget:MountTarget | efs/mount_target.go | fileSystemId subnetId |
eks/accessEntry:AccessEntry | eks/access_entry.go | clusterName principalArn type |
eks/accessPolicyAssociation:AccessPolicyAssociation | eks/access_policy_association.go | accessScope \
clusterName policyArn principalArn |
eks/addon:Addon | eks/addon.go | addonName clusterName |
eks/cluster:Cluster | eks/cluster.go | accessConfig.bootstrapClusterCreatorAdminPermissions \
bootstrapSelfManagedAddons name roleArn | encryptionConfig
eks/nodeGroup:NodeGroup | eks/node_group.go | amiType capacityType clusterName diskSize instanceTypes \
nodeGroupName nodeRoleArn subnetIds |
eks/podIdentityAssociation:PodIdentityAssociation | eks/pod_identity_association.go | clusterName \
namespace serviceAccount |
fis/experimentTemplate:ExperimentTemplate | fis/experiment_template.go | |
iam/instanceProfile:InstanceProfile | iam/instance_profile.go | name |
iam/openIdConnectProvider:OpenIdConnectProvider | iam/openid_connect_provider.go | url |
iam/policy:Policy | iam/policy.go | description name |
iam/role:Role | iam/role.go | name |
iam/rolePolicy:RolePolicy | iam/role_policy.go | name role |
iam/rolePolicyAttachment:RolePolicyAttachment | iam/role_policy_attachment.go | policyArn role |
kms/alias:Alias | kms/alias.go | name |
kms/key:Key | kms/key.go | |
lambda/eventSourceMapping:EventSourceMapping | lambda/event_source_mapping.go | eventSourceArn |
lambda/function:Function | lambda/function.go | name packageType |
lambda/functionEventInvokeConfig:FunctionEventInvokeConfig | lambda/function_event_invoke_config.go | \
functionName qualifier |
lambda/layerVersion:LayerVersion | lambda/layer_version.go | code compatibleArchitectures \
compatibleRuntimes description layerName licenseInfo |
lambda/permission:Permission | lambda/permission.go | action function principal sourceArn statementId |
lb/listener:Listener | elbv2/listener.go | loadBalancerArn |
lb/loadBalancer:LoadBalancer | elbv2/load_balancer.go | internal loadBalancerType name |
lb/targetGroup:TargetGroup | elbv2/target_group.go | ipAddressType name port protocol protocolVersion \
targetType vpcId |
mq/broker:Broker | mq/broker.go | brokerName deploymentMode encryptionOptions engineType \
publiclyAccessible subnetIds |
rolesanywhere/profile:Profile | rolesanywhere/profile.go | |
route53/record:Record | route53/record.go | name zoneId |
s3/bucket:Bucket | s3/bucket.go | bucket |
s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration | s3/bucket_lifecycle_configuration.go | bucket |
s3/bucketObjectv2:BucketObjectv2 | s3/object.go | bucket key |
s3/bucketOwnershipControls:BucketOwnershipControls | s3/bucket_ownership_controls.go | bucket |
s3/bucketPolicy:BucketPolicy | s3/bucket_policy.go | bucket |
s3/bucketPublicAccessBlock:BucketPublicAccessBlock | s3/bucket_public_access_block.go | bucket |
s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration | \
s3/bucket_server_side_encryption_configuration.go | bucket |
s3/bucketVersioning:BucketVersioning | s3/bucket_versioning.go | bucket |
scheduler/schedule:Schedule | scheduler/schedule.go | name groupName |
secretsmanager/secret:Secret | secretsmanager/secret.go | name |
secretsmanager/secretVersion:SecretVersion | secretsmanager/secret_version.go | secretBinary secretId \
secretString |
sns/topic:Topic | sns/topic.go | name |
sns/topicPolicy:TopicPolicy | sns/topic_policy.go | arn |
sns/topicSubscription:TopicSubscription | sns/topic_subscription.go | endpoint protocol topic |
sqs/queue:Queue | sqs/queue.go | name |
sqs/queuePolicy:QueuePolicy | sqs/queue_policy.go | queueUrl |
ssm/document:Document | ssm/document.go | name | documentType
ssm/parameter:Parameter | ssm/parameter.go | name |
vpc/securityGroupEgressRule:SecurityGroupEgressRule | ec2/vpc_security_group_egress_rule.go | \
securityGroupId | cidrIpv4 fromPort ipProtocol referencedSecurityGroupId toPort
vpc/securityGroupIngressRule:SecurityGroupIngressRule | ec2/vpc_security_group_ingress_rule.go | \
securityGroupId | cidrIpv4 fromPort ipProtocol referencedSecurityGroupId toPort
"""


def _row(line: str) -> tuple[str, ReplacedBy]:
    type_, source, inputs, in_place = (cell.split() for cell in line.split("|"))
    return f"aws:{type_[0]}", ReplacedBy(source[0], frozenset(inputs), frozenset(in_place))


REPLACED_BY: Final[Mapping[str, ReplacedBy]] = dict(map(_row, _ROWS.strip().splitlines()))
"""What replaces a resource, by its type."""

BY_PROGRAM: Final = {"SpotFleetRequest": {"onDemandTargetCapacity", "targetCapacity"}}
"""Inputs of a fleet of type ``request`` that the program itself wants replaced (``replace_on_changes``)."""

_IF_IT_GOES: Final = {"aws:eks/cluster:Cluster": {"encryptionConfig"}}
"""Inputs that replace a resource only when they are taken away (``eks/cluster.go``, ``CustomizeDiff``)."""

_SOURCE_OF_A_RULE: Final = frozenset({"cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId"})
"""Of a security group's rule: another kind of source replaces it (``ModifyPlan``)."""

FORCES_NEW: Final = {
    type_.rpartition(":")[2]: {key for key in row.inputs if "." not in key}
    | BY_PROGRAM.get(type_.rpartition(":")[2], set())
    for type_, row in REPLACED_BY.items()
}
"""The inputs that always replace, by the last part of the type."""

_KUBERNETES: Final[Mapping[str, tuple[str, ...]]] = {
    "ConfigMap": ("data", "binaryData"),
    "Deployment": ("spec.selector",),
    "Job": ("spec.completions", "spec.parallelism", "spec.selector", "spec.template"),
    "PersistentVolume": ("spec.csi",),
    "PersistentVolumeClaim": ("spec",),
    "Secret": ("type", "data", "stringData"),
    "StatefulSet": ("spec.selector", "spec.serviceName", "spec.volumeClaimTemplates"),
}
_NAMES: Final = ("metadata.name", "metadata.namespace")
_HELM: Final = frozenset({"name", "namespace"})


def forcing(type_: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """Return the inputs whose change replaces a resource.

    Raises ``KeyError`` for a type of AWS that the table has not.
    """
    kind = type_.rpartition(":")[2]
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    if type_.startswith("kubernetes:helm.sh/"):
        return changed & _HELM
    if type_.startswith("kubernetes:"):
        return set(_top_keys(before, after, (*_NAMES, *_KUBERNETES.get(kind, ()))))
    if not type_.startswith("aws:") or not changed:
        return set()
    row = REPLACED_BY[type_].inputs
    found = changed & (row | BY_PROGRAM.get(kind, set()))
    found |= set(_top_keys(before, after, tuple(path for path in row if "." in path)))
    found |= {
        key for key in changed & _IF_IT_GOES.get(type_, set()) if before.get(key) and not after.get(key)
    }
    sources = [_SOURCE_OF_A_RULE & inputs.keys() for inputs in (before, after)]
    return found | (sources[0] ^ sources[1] if kind.startswith("SecurityGroup") else set())


def _top_keys(before: Mapping[str, Any], after: Mapping[str, Any], paths: tuple[str, ...]) -> Iterator[str]:
    for path, _, _ in value_differences(dict(before), dict(after)):
        if paths and path.startswith(paths):
            yield path.partition(".")[0]
