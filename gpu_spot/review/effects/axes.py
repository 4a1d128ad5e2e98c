"""What a change means beside running workers: for data, reach (who may call or act), alarms and control.

A table of provider types and inputs. What it has not is *look*, as is a value that the preview does not know.
Whatever is kept, counted, protected, versioned, alarmed, limited or scheduled and becomes less is at least
``WATCH``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpu_spot.markdown import code, label
from gpu_spot.review import boot_data
from gpu_spot.review.effects.consequences import Severity
from gpu_spot.review.effects.effect import Effect, named
from gpu_spot.review.effects.groups import PARAMETER, Groups, group_of, value_of
from gpu_spot.review.effects.harmless import is_of
from gpu_spot.review.effects.permissions import compare_policies
from gpu_spot.review.preview import EngineStep
from gpu_spot.review.value_diff import difference_lines, value_differences
from gpu_spot.review.values import is_hidden, mapping

DATA, REACH, CONTROL = "data", "reach", "alarms and control"
AXES: Final = (DATA, REACH, CONTROL)
_LETTERS: Final = {"d": DATA, "r": REACH, "c": CONTROL}

_ROWS: Final = """
autoscaling/group:Group c .capacityRebalance .desiredCapacity .forceDelete .healthCheckType \
.healthCheckGracePeriod .instanceRefresh .maxSize .minSize .mixedInstancesPolicy .protectFromScaleIn \
=initialLifecycleHooks =suspendedProcesses .vpcZoneIdentifiers .waitForCapacityTimeout .warmPool \
.targetGroupArns .maxInstanceLifetime .terminationPolicies .availabilityZoneDistribution
autoscaling/lifecycleHook:LifecycleHook c! +heartbeatTimeout =defaultResult =lifecycleTransition \
.autoscalingGroupName .name
budgets/budget:Budget c! .budgetType =costFilters -limitAmount .limitUnit +notifications .timeUnit
cloudwatch/dashboard:Dashboard c .dashboardBody .dashboardName
cloudwatch/eventRule:EventRule c! =eventPattern @scheduleExpression +isEnabled =state
cloudwatch/eventTarget:EventTarget c! +deadLetterConfig =arn =rule =input =retryPolicy
cloudwatch/logGroup:LogGroup d! .name ~retentionInDays .kmsKeyId +skipDestroy =logGroupClass
cloudwatch/logMetricFilter:LogMetricFilter c! =metricTransformation =pattern =logGroupName
cloudwatch/metricAlarm:MetricAlarm c! %
cloudwatch/queryDefinition:QueryDefinition c .queryString .logGroupNames .name
dynamodb/table:Table d! +deletionProtectionEnabled +pointInTimeRecovery .serverSideEncryption =ttl \
.attributes .billingMode =hashKey =rangeKey =streamEnabled
ec2/defaultSecurityGroup:DefaultSecurityGroup r! .vpcId =egress =ingress
ec2/eip:Eip r .domain
ec2/flowLog:FlowLog c! =trafficType =logDestination .iamRoleArn =vpcId =maxAggregationInterval
ec2/internetGateway:InternetGateway r .vpcId
ec2/launchTemplate:LaunchTemplate r .tagSpecifications .blockDeviceMappings .imageId .userData \
.updateDefaultVersion .ebsOptimized .networkInterfaces .placement .cpuOptions .instanceMarketOptions \
.capacityReservationSpecification =iamInstanceProfile =metadataOptions =vpcSecurityGroupIds =keyName \
.privateDnsNameOptions
ec2/natGateway:NatGateway r .allocationId .subnetId .connectivityType
ec2/placementGroup:PlacementGroup r .strategy .name
ec2/route:Route r =destinationCidrBlock =gatewayId =natGatewayId =routeTableId
ec2/routeTable:RouteTable r .vpcId =propagatingVgws =routes
ec2/routeTableAssociation:RouteTableAssociation r =subnetId =routeTableId
ec2/securityGroup:SecurityGroup r =ingress =egress .vpcId .name
ec2/spotFleetRequest:SpotFleetRequest r .allocationStrategy .excessCapacityTerminationPolicy .fleetType \
=iamFleetRole .instanceInterruptionBehaviour .instancePoolsToUseCount .launchTemplateConfigs \
=loadBalancers .onDemandAllocationStrategy .onDemandTargetCapacity .replaceUnhealthyInstances .spotPrice \
.targetCapacity =targetGroupArns .terminateInstancesOnDelete .waitForFulfillment
ec2/subnet:Subnet r .availabilityZone .cidrBlock =mapPublicIpOnLaunch .vpcId
ec2/vpc:Vpc r .cidrBlock .enableDnsHostnames .enableDnsSupport
ec2/vpcEndpoint:VpcEndpoint r ^policy .privateDnsEnabled .routeTableIds =securityGroupIds .serviceName \
.subnetIds .vpcEndpointType .vpcId
ecr/lifecyclePolicy:LifecyclePolicy d* ~policy =repository
ecr/repository:Repository d! .encryptionConfigurations +imageScanningConfiguration =imageTagMutability \
-forceDelete
efs/accessPoint:AccessPoint r =rootDirectory =posixUser .fileSystemId
efs/fileSystem:FileSystem d! .lifecyclePolicies .throughputMode .provisionedThroughputInMibps \
.performanceMode +encrypted .kmsKeyId +protection
efs/backupPolicy:BackupPolicy d! +backupPolicy
efs/fileSystemPolicy:FileSystemPolicy r! ^policy =fileSystemId
efs/mountTarget:MountTarget r =securityGroups .subnetId .fileSystemId
eks/accessEntry:AccessEntry r! =principalArn =type =kubernetesGroups .clusterName
eks/accessPolicyAssociation:AccessPolicyAssociation r! =accessScope =policyArn =principalArn \
.clusterName
eks/addon:Addon c .clusterName .addonVersion .configurationValues .addonName .resolveConflictsOnCreate \
.resolveConflictsOnUpdate
eks/cluster:Cluster r .bootstrapSelfManagedAddons +enabledClusterLogTypes =accessConfig \
+encryptionConfig .roleArn .upgradePolicy .version =vpcConfig .name +deletionProtection
eks/nodeGroup:NodeGroup c .amiType .capacityType .instanceTypes .launchTemplate =nodeRoleArn \
.scalingConfig .subnetIds .updateConfig .clusterName .version .releaseVersion
eks/podIdentityAssociation:PodIdentityAssociation r! =namespace =roleArn =serviceAccount .clusterName
fis/experimentTemplate:ExperimentTemplate c .actions .targets =stopConditions .roleArn .logConfiguration
iam/instanceProfile:InstanceProfile r! =role
iam/openIdConnectProvider:OpenIdConnectProvider r! =clientIdLists =thumbprintLists =url
iam/policy:Policy r! ^policy
iam/role:Role r! ^assumeRolePolicy =permissionsBoundary .maxSessionDuration =managedPolicyArns \
=inlinePolicies
iam/rolePolicy:RolePolicy r! ^policy =role
iam/rolePolicyAttachment:RolePolicyAttachment r! =policyArn =role
kms/alias:Alias r =targetKeyId .name
kms/key:Key d! ^policy +deletionWindowInDays +enableKeyRotation +isEnabled =keyUsage
lambda/eventSourceMapping:EventSourceMapping c! +enabled .batchSize =eventSourceArn =functionName \
+functionResponseTypes .maximumBatchingWindowInSeconds +scalingConfig =filterCriteria
lambda/function:Function c! .kmsKeyArn =code =environment =handler =layers \
+reservedConcurrentExecutions =role +timeout +memorySize .architectures .runtime .loggingConfig \
.vpcConfig =deadLetterConfig .name
lambda/functionEventInvokeConfig:FunctionEventInvokeConfig c! +maximumEventAgeInSeconds \
+maximumRetryAttempts =destinationConfig .functionName
lambda/layerVersion:LayerVersion c .code .compatibleRuntimes .description .layerName
lambda/permission:Permission r! =action =function =principal =sourceArn =sourceAccount
lb/listener:Listener r! =certificateArn =defaultActions =port =protocol =sslPolicy
lb/loadBalancer:LoadBalancer r! +accessLogs +dropInvalidHeaderFields =internal .idleTimeout \
=securityGroups =subnets +enableDeletionProtection .preserveHostHeader
lb/targetGroup:TargetGroup r! .deregistrationDelay =healthCheck =port =protocol \
.loadBalancingAlgorithmType
mq/broker:Broker r .applyImmediately .autoMinorVersionUpgrade .deploymentMode .engineVersion \
.hostInstanceType +logs .maintenanceWindowStartTime =publiclyAccessible =securityGroups .subnetIds \
=users =configuration +encryptionOptions .engineType
mq/configuration:Configuration c =data .engineVersion .engineType
rolesanywhere/profile:Profile r! =roleArns =durationSeconds +enabled =sessionPolicy
route53/record:Record r! =aliases =name =type =records =zoneId
s3/bucket:Bucket d! -forceDestroy
s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration d* ~rules =bucket
s3/bucketObjectv2:BucketObjectv2 c .content .contentType .key .source .bucket
s3/bucketOwnershipControls:BucketOwnershipControls r! =rule .bucket
s3/bucketPolicy:BucketPolicy r! ^policy .bucket
s3/bucketPublicAccessBlock:BucketPublicAccessBlock r! +blockPublicAcls +blockPublicPolicy \
+ignorePublicAcls +restrictPublicBuckets .bucket
s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration d .rules .bucket
s3/bucketVersioning:BucketVersioning d! +versioningConfiguration .bucket
scheduler/schedule:Schedule c! =scheduleExpression =scheduleExpressionTimezone =target =flexibleTimeWindow \
=state =endDate =startDate .name .groupName
secretsmanager/secret:Secret d! .kmsKeyId +recoveryWindowInDays =policy
secretsmanager/secretVersion:SecretVersion r =secretString =secretBinary =versionStages .secretId
sns/topic:Topic c! .kmsMasterKeyId ^policy
sns/topicPolicy:TopicPolicy r! ^policy .arn
sns/topicSubscription:TopicSubscription c! =endpoint =protocol =filterPolicy .topic
sqs/queue:Queue d! +messageRetentionSeconds +visibilityTimeoutSeconds +redrivePolicy \
.receiveWaitTimeSeconds +sqsManagedSseEnabled .kmsMasterKeyId .kmsDataKeyReusePeriodSeconds \
=delaySeconds +maxMessageSize ^policy
sqs/queuePolicy:QueuePolicy r! ^policy .queueUrl
ssm/document:Document c! =content .documentFormat .documentType .name
vpc/securityGroupEgressRule:SecurityGroupEgressRule r! =cidrIpv4 =cidrIpv6 =fromPort =ipProtocol \
=prefixListId =referencedSecurityGroupId =securityGroupId =toPort
vpc/securityGroupIngressRule:SecurityGroupIngressRule r! =cidrIpv4 =cidrIpv6 =fromPort =ipProtocol \
=prefixListId =referencedSecurityGroupId =securityGroupId =toPort
"""


@dataclass(frozen=True)
class _Kind:
    """How changes of a type are judged: by default on ``axis``; ``mark`` and rules as in ``_ROWS``.

    After the axis ``!``: its existence matters. ``*``: it deletes data by itself. Of an input: ``.`` no
    bearing, ``=`` look at any change, ``+`` more is safer, ``-`` less is safer, ``~`` data expires by it,
    ``^`` a policy, ``@`` a schedule; ``%`` an alarm's inputs.
    """

    axis: str
    mark: str
    rules: Mapping[str, str]


def _kind(line: str) -> tuple[str, _Kind]:
    token, axis, *rules = line.split()
    return f"aws:{token}", _Kind(_LETTERS[axis[0]], axis[1:], {rule[1:]: rule[0] for rule in rules})


KINDS: Final[Mapping[str, _Kind]] = dict(map(_kind, _ROWS.strip().splitlines()))
_NEUTRAL: Final = frozenset({"tags", "tagsAll", "description", "alarmDescription", "forceDetachPolicies"})
_AXIS_OF_INPUT: Final = {
    **dict.fromkeys(("accessLogs", "logs", "enabledClusterLogTypes"), CONTROL),
    **dict.fromkeys(("encryptionConfig", "enableDeletionProtection", "deletionProtection"), DATA),
}
"""Where an input's axis is not that of its type."""
_IDENTITY_BASED: Final = frozenset({"RolePolicy", "Policy", "RolePolicyAttachment"})
_RANKS: Final = {"disabled": 0, "suspended": 0, "none": 0, "false": 0, "enabled": 1, "true": 1}
_OF_KUBERNETES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "NetworkPolicy"), REACH),
    **dict.fromkeys(("Service", "ServiceAccount"), REACH),
    **dict.fromkeys(("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"), CONTROL),
    **dict.fromkeys(("PodDisruptionBudget", "PriorityClass", "ResourceQuota", "Release"), CONTROL),
    **dict.fromkeys(("PersistentVolume", "PersistentVolumeClaim", "StorageClass", "VolumeSnapshot"), DATA),
    **dict.fromkeys(("VolumeSnapshotClass", "VolumeSnapshotContent"), DATA),
}
_PLAIN_KUBERNETES: Final = frozenset(
    {
        *("ClusterQueue", "ConfigMap", "DaemonSet", "Deployment", "EC2NodeClass", "Job", "LocalQueue"),
        *("Namespace", "NodePool", "ReplicaSet", "ResourceFlavor", "ScaledObject", "Secret"),
        *("SecretProviderClass", "StatefulSet", "TrainJob", "TrainingRuntime", "TriggerAuthentication"),
    }
)
_WORDS: Final = {
    "shrinks": "**{axis} {verb}**",
    "grows": "{axis} {verb}",
    "unknown": "**{axis}: look**, the effect is not known",
}


def axis_effects(step: EngineStep, groups: Groups, steps: Sequence[EngineStep]) -> Iterator[Effect]:
    """Yield what a change means beside running workers."""
    group = groups.of(step)
    if step.type == PARAMETER:
        yield from _parameter(step, group)
        return
    if step.type.startswith("kubernetes:"):
        yield from _of_kubernetes(step, group, groups)
        return
    kind = KINDS.get(step.type)
    if kind is None:
        if not step.type.startswith("pulumi:"):
            yield _effect(CONTROL, "unknown", group, f"{named(step)}: no table has its type ({step.op})")
    elif step.op == "create":
        yield from _created(step, kind, group, groups, steps)
    elif step.op == "delete":
        yield from _deleted(step, kind, group, groups)
    elif step.op in ("update", "replace"):
        if step.op == "replace" and kind.axis == DATA and kind.mark == "!" and not step.retained:
            yield _effect(DATA, "shrinks", group, f"{named(step)} is replaced")
        for key in step.changed:
            if key in _NEUTRAL:
                continue
            axis = REACH if kind.rules.get(key) == "^" else _AXIS_OF_INPUT.get(key, kind.axis)
            direction = _direction(step, kind, key, group, steps)
            if direction:
                lines = list(difference_lines(step.old.get(key), step.new.get(key), key))
                detail = "; ".join(lines[:3]) or label(key)
                is_grant = axis == REACH and direction == "grows" and step.kind not in _IDENTITY_BASED
                yield _effect(axis, direction, group, f"{named(step)} {detail}", is_watched=is_grant)
    else:
        yield _effect(kind.axis, "unknown", group, f"{named(step)} has the operation {code(step.op)}")


def _effect(axis: str, direction: str, group: str, detail: str, *, is_watched: bool = False) -> Effect:
    severity = Severity.LATER if direction == "grows" and not is_watched else Severity.WATCH
    words = _WORDS[direction].format(axis=axis, verb=verb(axis, direction))
    return Effect(severity, group, words, (detail,), axis=axis, direction=direction)


def verb(axis: str, direction: str) -> str:
    """Return a direction as the verb of its axis: alarms and control shrink."""
    return direction.removesuffix("s") if axis == CONTROL else direction


def _created(
    step: EngineStep, kind: _Kind, group: str, groups: Groups, steps: Sequence[EngineStep]
) -> Iterator[Effect]:
    if kind.mark == "*" and not _owner_is_new(step, steps):
        yield _effect(kind.axis, "shrinks", group, f"{named(step)} is created: what exists may expire")
    elif step.kind == "Role" and _trusts_outsiders(step.new.get("assumeRolePolicy")):
        detail = f"{named(step)} is created, for others than AWS services"
        yield _effect(REACH, "grows", group, detail, is_watched=True)
    elif kind.axis == REACH and kind.mark and group not in groups.new and not _owner_is_new(step, steps):
        yield _effect(REACH, "grows", group, f"{named(step)} is created", is_watched=True)


def _owner_is_new(step: EngineStep, steps: Sequence[EngineStep]) -> bool:
    """Return whether the resource that this one belongs to, and is named after, is created with it."""
    created = [candidate for candidate in steps if candidate.op == "create"]
    return is_of(step, (candidate for candidate in created if not candidate.is_component))


def _trusts_outsiders(trust: Any) -> bool:
    return bool(re.search(r'"(Federated|AWS)"|"Principal":\s*"\*"', trust if isinstance(trust, str) else ""))


def _deleted(step: EngineStep, kind: _Kind, group: str, groups: Groups) -> Iterator[Effect]:
    goes_with_it = group in groups.removed and kind.axis != DATA
    if kind.mark and not goes_with_it:
        direction = "grows" if kind.mark == "*" else "shrinks"
        yield _effect(kind.axis, direction, group, f"{named(step)} is deleted")


def _direction(step: EngineStep, kind: _Kind, key: str, group: str, steps: Sequence[EngineStep]) -> str:
    rule, old, new = kind.rules.get(key, "?"), step.old.get(key), step.new.get(key)
    if "" in kind.rules:
        return _alarm(step, key, group, steps)
    if rule == "." or (old == new and not is_hidden(new)):  # a preview shows all secrets alike
        return ""
    if key == "sqsManagedSseEnabled" and step.new.get("kmsMasterKeyId"):
        return ""  # a key of KMS in its place
    if rule in "?=" or is_hidden(new) or is_hidden(old):
        return "unknown"
    if rule == "^":
        return compare_policies(old, new)
    if rule == "@":
        return _moved(_minutes(new), _minutes(old))
    if rule == "~":
        return _expiry(old, new)
    return _compared(old, new) if rule == "+" else _compared(new, old)


def _sign(difference: float) -> str:
    return "grows" if difference > 0 else "shrinks" if difference < 0 else ""


def _moved(before: float | None, after: float | None) -> str:
    return "unknown" if before is None or after is None else _sign(after - before)


def _amount(value: Any) -> float | None:
    if isinstance(value, str):
        value = _RANKS.get(value.casefold(), value)
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _compared(old: Any, new: Any) -> str:
    """Return the direction from ``old`` to ``new``, where more is safer and missing is less."""
    directions = set()
    for _, before, after in value_differences(old, new):
        if isinstance(before, list) and isinstance(after, list):
            missing = [item for item in before if item not in after]
            directions.add("shrinks" if missing else "grows")
            continue
        if before is None or after is None:
            amount = _amount(before if after is None else after)
            directions.add("grows" if (after is None) == (amount == 0) else "shrinks")
            continue
        directions.add(_moved(_amount(before), _amount(after)))
    return next((name for name in ("unknown", "shrinks", "grows") if name in directions), "")


def _expiry(old: Any, new: Any) -> str:
    """Return the direction of what is kept: no limit, and 0 of a log group, are for ever."""
    directions = set()
    for path, before, after in value_differences(old, new):
        if path.endswith("description"):
            continue
        old_amount, new_amount = _amount(before), _amount(after)
        if before is None or old_amount == 0:
            directions.add("shrinks")
        elif after is None or new_amount == 0:
            directions.add("grows")
        else:
            directions.add(_moved(old_amount, new_amount))
    return next((name for name in ("unknown", "shrinks", "grows") if name in directions), "")


def _minutes(schedule: Any) -> float | None:
    match = re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", str(schedule))
    return float(match[1]) * {"minute": 1, "hour": 60, "day": 1440}[match[2]] if match else None


def _alarm(step: EngineStep, key: str, group: str, steps: Sequence[EngineStep]) -> str:
    old, new = step.old.get(key), step.new.get(key)
    if is_hidden(new):
        return "unknown"
    if key in ("alarmActions", "okActions", "insufficientDataActions", "actionsEnabled"):
        return _compared(True if old is None and key == "actionsEnabled" else old, new)
    if key in ("evaluationPeriods", "datapointsToAlarm", "period"):
        return _compared(new, old)
    if key == "threshold":
        if any(
            candidate.type == PARAMETER
            and candidate.op == "update"
            and group_of(candidate) == group
            and candidate.name.endswith(("-target", "-config"))
            for candidate in steps
        ):
            return ""  # it follows the size of the group
        is_upper = str(step.new.get("comparisonOperator", "")).startswith("Greater")
        return _compared(new, old) if is_upper else _compared(old, new)
    return "unknown"


def _parameter(step: EngineStep, group: str) -> Iterator[Effect]:
    """Yield what a group's changed limit of money means; other parameters steer workers."""
    if step.op != "update" or not step.name.endswith("-config"):
        return
    try:
        budgets = [mapping(json.loads(value_of(inputs))).get("budget") for inputs in (step.old, step.new)]
    except ValueError:
        return
    if budgets[0] and (direction := _compared(budgets[1] or 1e12, budgets[0])):
        detail = f"the budget of {code(group)}: {budgets[0]} → {budgets[1] or 'none'}"
        yield _effect(CONTROL, direction, group, detail)


def _of_kubernetes(step: EngineStep, group: str, groups: Groups) -> Iterator[Effect]:
    axis = _OF_KUBERNETES.get(step.kind)
    if step.kind in _PLAIN_KUBERNETES or (axis and step.op == "create"):
        return
    if axis is None:
        yield _effect(CONTROL, "unknown", group, f"{named(step)}: no table has its kind ({step.op})")
    elif step.op == "delete" and (group not in groups.removed or axis == DATA):
        yield _effect(axis, "shrinks", group, f"{named(step)} is deleted")
    elif step.op != "delete":
        yield _effect(axis, "unknown", group, f"{named(step)} changes")


def left_behind(groups: Groups, steps: Sequence[EngineStep]) -> Iterator[Effect]:
    """Yield what a removed or renamed entry leaves in the account, and what a smaller volume does not do."""
    for step in steps:
        group = groups.of(step)
        if step.type == PARAMETER and step.op == "delete" and step.name.endswith("-checkpoints"):
            location = value_of(step.old)
            if group in groups.removed and not location.startswith("volume"):
                words = (
                    f"removed or renamed: **its checkpoints stay** in {label(location)}; under another name "
                    "the job starts without them, from its first step"
                )
                yield Effect(Severity.WATCH, group, words, axis=DATA, direction="shrinks")
        if step.type != "aws:ec2/launchTemplate:LaunchTemplate" or step.op not in ("delete", "update"):
            continue
        before, after = (
            boot_data.volume_gib(str(inputs.get("userData", ""))) for inputs in (step.old, step.new)
        )
        if step.op == "delete" and group in groups.removed and before:
            words = (
                f"removed or renamed: **its volume of {before} GiB and its snapshots stay**, and cost until "
                "a person deletes them; under another name the job starts without them, from its first step"
            )
            yield Effect(Severity.WATCH, group, words, axis=DATA, direction="shrinks")
        elif step.op == "update" and before and after and after < before:
            words = f"**a volume does not shrink**: {before} GiB stay; {after} GiB hold for a new volume only"
            yield Effect(Severity.WATCH, group, words, axis=DATA, direction="shrinks")
