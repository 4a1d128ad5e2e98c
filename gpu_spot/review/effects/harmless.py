"""Changes of resources that end no worker. What no table has may end some: it is not known.

An entry is about running workers only: a change of it may well matter to those that start later, to
people, or to the bill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from gpu_spot.review.effects.permissions import compare_policies
from gpu_spot.review.preview import EngineStep
from gpu_spot.review.values import grows, has_unknown, mapping

_CREATED: Final = """
autoscaling/group:Group autoscaling/lifecycleHook:LifecycleHook
budgets/budget:Budget cloudwatch/dashboard:Dashboard cloudwatch/eventRule:EventRule
cloudwatch/eventTarget:EventTarget cloudwatch/logGroup:LogGroup cloudwatch/metricAlarm:MetricAlarm
cloudwatch/queryDefinition:QueryDefinition dynamodb/table:Table ec2/defaultSecurityGroup:DefaultSecurityGroup
ec2/eip:Eip ec2/flowLog:FlowLog ec2/internetGateway:InternetGateway ec2/launchTemplate:LaunchTemplate
ec2/natGateway:NatGateway ec2/placementGroup:PlacementGroup ec2/route:Route ec2/routeTable:RouteTable
ec2/routeTableAssociation:RouteTableAssociation ec2/securityGroup:SecurityGroup
ec2/spotFleetRequest:SpotFleetRequest ec2/subnet:Subnet ec2/vpc:Vpc ec2/vpcEndpoint:VpcEndpoint
ecr/lifecyclePolicy:LifecyclePolicy ecr/repository:Repository efs/accessPoint:AccessPoint
efs/fileSystem:FileSystem efs/mountTarget:MountTarget
eks/accessEntry:AccessEntry eks/accessPolicyAssociation:AccessPolicyAssociation eks/addon:Addon
eks/cluster:Cluster eks/nodeGroup:NodeGroup eks/podIdentityAssociation:PodIdentityAssociation
fis/experimentTemplate:ExperimentTemplate iam/instanceProfile:InstanceProfile
iam/openIdConnectProvider:OpenIdConnectProvider iam/policy:Policy iam/role:Role iam/rolePolicy:RolePolicy
iam/rolePolicyAttachment:RolePolicyAttachment kms/alias:Alias kms/key:Key
lambda/eventSourceMapping:EventSourceMapping lambda/function:Function
lambda/functionEventInvokeConfig:FunctionEventInvokeConfig lambda/layerVersion:LayerVersion
lambda/permission:Permission lb/listener:Listener lb/loadBalancer:LoadBalancer lb/targetGroup:TargetGroup
mq/broker:Broker route53/record:Record
mq/configuration:Configuration rolesanywhere/profile:Profile s3/bucket:Bucket
s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration s3/bucketObjectv2:BucketObjectv2
s3/bucketOwnershipControls:BucketOwnershipControls s3/bucketPublicAccessBlock:BucketPublicAccessBlock
s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration
s3/bucketVersioning:BucketVersioning scheduler/schedule:Schedule secretsmanager/secret:Secret
secretsmanager/secretVersion:SecretVersion sns/topic:Topic sns/topicSubscription:TopicSubscription
sqs/queue:Queue sqs/queuePolicy:QueuePolicy sns/topicPolicy:TopicPolicy s3/bucketPolicy:BucketPolicy
efs/fileSystemPolicy:FileSystemPolicy ssm/document:Document ssm/parameter:Parameter
vpc/securityGroupEgressRule:SecurityGroupEgressRule vpc/securityGroupIngressRule:SecurityGroupIngressRule
"""
"""Nothing runs on what does not exist yet. Parameters have rules of their own (``parameters.py``)."""

_DELETED: Final = """
autoscaling/lifecycleHook:LifecycleHook
budgets/budget:Budget cloudwatch/dashboard:Dashboard cloudwatch/metricAlarm:MetricAlarm
cloudwatch/queryDefinition:QueryDefinition ec2/eip:Eip ec2/flowLog:FlowLog
ec2/launchTemplate:LaunchTemplate fis/experimentTemplate:ExperimentTemplate
ecr/lifecyclePolicy:LifecyclePolicy sns/topicSubscription:TopicSubscription ssm/document:Document
s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration
lambda/functionEventInvokeConfig:FunctionEventInvokeConfig
ec2/internetGateway:InternetGateway
"""
"""Observation, bills, and settings without which the default applies."""

_REPLACED: Final = """
budgets/budget:Budget cloudwatch/dashboard:Dashboard cloudwatch/metricAlarm:MetricAlarm
cloudwatch/queryDefinition:QueryDefinition fis/experimentTemplate:ExperimentTemplate
cloudwatch/eventTarget:EventTarget lambda/permission:Permission ec2/flowLog:FlowLog
lambda/layerVersion:LayerVersion
ecr/lifecyclePolicy:LifecyclePolicy sns/topicSubscription:TopicSubscription ssm/document:Document
"""

_ANY: Final = frozenset({"*"})
_UPDATED: Final[Mapping[str, str]] = {
    "budgets/budget:Budget": "*",
    "cloudwatch/dashboard:Dashboard": "*",
    "cloudwatch/eventRule:EventRule": "eventPattern scheduleExpression",
    "cloudwatch/eventTarget:EventTarget": "*",
    "cloudwatch/logGroup:LogGroup": "retentionInDays kmsKeyId",
    "cloudwatch/metricAlarm:MetricAlarm": "*",
    "cloudwatch/queryDefinition:QueryDefinition": "*",
    "dynamodb/table:Table": "deletionProtectionEnabled pointInTimeRecovery serverSideEncryption ttl",
    "autoscaling/lifecycleHook:LifecycleHook": "defaultResult heartbeatTimeout",
    "ec2/launchTemplate:LaunchTemplate": "*",
    "ec2/subnet:Subnet": "mapPublicIpOnLaunch",
    "ecr/lifecyclePolicy:LifecyclePolicy": "*",
    "ecr/repository:Repository": "imageScanningConfiguration imageTagMutability",
    "efs/fileSystem:FileSystem": "lifecyclePolicies provisionedThroughputInMibps throughputMode",
    "eks/cluster:Cluster": "enabledClusterLogTypes upgradePolicy",
    "fis/experimentTemplate:ExperimentTemplate": "*",
    "lambda/eventSourceMapping:EventSourceMapping": "*",
    "lambda/function:Function": "*",
    "lambda/functionEventInvokeConfig:FunctionEventInvokeConfig": "*",
    "mq/broker:Broker": "maintenanceWindowStartTime logs applyImmediately autoMinorVersionUpgrade",
    "s3/bucket:Bucket": "forceDestroy",
    "s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": "*",
    "s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": "*",
    "s3/bucketVersioning:BucketVersioning": "*",
    "scheduler/schedule:Schedule": "*",
    "secretsmanager/secret:Secret": "kmsKeyId recoveryWindowInDays",
    "sns/topic:Topic": "kmsMasterKeyId",
    "sqs/queue:Queue": "visibilityTimeoutSeconds messageRetentionSeconds receiveWaitTimeSeconds "
    "redrivePolicy kmsMasterKeyId sqsManagedSseEnabled kmsDataKeyReusePeriodSeconds",
    "ssm/document:Document": "*",
}
"""Inputs whose change in place ends no worker."""

_GROWING: Final[Mapping[str, str]] = {
    "ec2/vpcEndpoint:VpcEndpoint": "routeTableIds subnetIds securityGroupIds"
}
"""Inputs whose change ends no worker while no element goes."""

_POLICIES: Final[Mapping[str, str]] = {
    "iam/policy:Policy": "policy",
    "iam/rolePolicy:RolePolicy": "policy",
    "s3/bucketPolicy:BucketPolicy": "policy",
    "sns/topicPolicy:TopicPolicy": "policy",
    "sqs/queuePolicy:QueuePolicy": "policy",
    "efs/fileSystemPolicy:FileSystemPolicy": "policy",
    "kms/key:Key": "policy",
}
"""Policies, which end no worker while they allow what they allowed."""

_OF_FUNCTIONS: Final = ("-function", "-dead-letters", "-wake-ups")
"""Ends of names of policies that concern the functions and their queues, not workers."""

_DESCRIPTIVE: Final = frozenset({"description", "tags", "tagsAll"})
_OWN_TAGS: Final = "gpu-spot:"
"""Tags by which the controller and its permissions select resources."""


def _tokens(text: str) -> frozenset[str]:
    return frozenset(f"aws:{token}" for token in text.split())


HARMLESS: Final[Mapping[str, frozenset[str]]] = {
    "create": _tokens(_CREATED),
    "delete": _tokens(_DELETED),
    "replace": _tokens(_REPLACED),
}
"""Types that may be created, deleted or replaced without an end of a worker."""

HARMLESS_INPUTS: Final[Mapping[str, frozenset[str]]] = {
    f"aws:{token}": frozenset(inputs.split()) for token, inputs in _UPDATED.items()
}
"""Inputs that may change in place, by type; ``*`` is any."""


def is_of(step: EngineStep, owners: Iterable[EngineStep]) -> bool:
    """Return whether a resource is named after one of ``owners``, to which it belongs."""
    return any(
        owner.type != step.type and (step.name == owner.name or step.name.startswith(f"{owner.name}-"))
        for owner in owners
    )


def _denies_nothing(step: EngineStep) -> bool:
    policy = step.new.get("policy")
    return compare_policies(policy, {"Statement": []}) != "unknown" and '"Deny"' not in str(policy)


_OF_A_SERVICE: Final = frozenset({"Role", "RolePolicy", "RolePolicyAttachment"})
_ATTACHED: Final[Mapping[str, Callable[[EngineStep], bool]]] = {
    **dict.fromkeys(("BucketPolicy", "FileSystemPolicy", "QueuePolicy", "TopicPolicy"), _denies_nothing),
    "Route": lambda step: step.new.get("destinationCidrBlock") in ("0.0.0.0/0", "::/0"),
    **dict.fromkeys(("RouteTableAssociation", "SecretVersion"), lambda _: False),
}
"""Kinds that act on what exists when they are created, and when they end no worker all the same."""


def is_harmless(step: EngineStep, owners: Sequence[EngineStep] = ()) -> bool:
    """Return whether a change ends no worker, by the tables; False if that is not known.

    ``owners`` are the resources that are created or deleted with it.
    """
    if step.type.startswith("pulumi:providers:"):
        # A provider is a plugin, not a resource; its version is that of the SDK.
        return step.op in ("create", "delete") or set(step.changed) <= {"version"}
    if step.op == "create" and step.kind in _ATTACHED:
        return _ATTACHED[step.kind](step) or is_of(step, owners)
    if step.op == "delete" and step.kind in _OF_A_SERVICE:
        # A role goes with the flow log or function that it is named after.
        users = (owner for owner in owners if owner.kind in ("FlowLog", "Function"))
        return any(step.name == owner.name or step.name.startswith(f"{owner.name}-") for owner in users)
    if step.op != "update":
        return step.type in HARMLESS.get(step.op, frozenset())
    if not step.type.startswith("aws:") or not step.changed:
        return False
    inputs = HARMLESS_INPUTS.get(step.type, frozenset())
    return all(inputs >= _ANY or key in inputs or _is_harmless_input(step, key) for key in step.changed)


def _is_harmless_input(step: EngineStep, key: str) -> bool:
    token, old, new = step.type.removeprefix("aws:"), step.old.get(key), step.new.get(key)
    if key in _DESCRIPTIVE:
        return not _changes_own_tags(old, new) if key != "description" else True
    if key in _GROWING.get(token, "").split():
        return grows(old, new)
    if key != _POLICIES.get(token):
        return False
    return step.name.endswith(_OF_FUNCTIONS) or compare_policies(old, new) in ("", "grows")


def _changes_own_tags(old: Any, new: Any) -> bool:
    if has_unknown(new):
        return True
    return {key: value for key, value in _tags(old) if key.startswith(_OWN_TAGS)} != {
        key: value for key, value in _tags(new) if key.startswith(_OWN_TAGS)
    }


def _tags(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, list):  # of an Auto Scaling group
        return [(str(mapping(tag).get("key", "")), mapping(tag).get("value")) for tag in value]
    return mapping(value).items()
