"""The provider's types as CloudFormation types."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.oracles.cloudformation import As, Inputs, Part, Properties, pascal_case, tag_list

BUCKET: Final = "aws:s3/bucket:Bucket"

NO_COUNTERPART: Final = {
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": "adopts what AWS made; CloudFormation cannot",
    "aws:s3/bucketObjectv2:BucketObjectv2": "CloudFormation declares no objects",
}


def _group(inputs: Inputs) -> Properties:
    hooks = [
        {"LifecycleHookName": hook.pop("name"), **pascal_case(hook)}
        for hook in map(dict, inputs.pop("initialLifecycleHooks", []))
    ]
    return {"LifecycleHookSpecificationList": hooks}


def _template(inputs: Inputs) -> Properties:
    specifications = [
        {"ResourceType": one["resourceType"], "Tags": tag_list(one["tags"])}
        for one in inputs.pop("tagSpecifications")
    ]
    made = {"VersionDescription": inputs.pop("description")}
    data = {"TagSpecifications": specifications, **pascal_case(inputs)}
    if groups := data.pop("VpcSecurityGroupIds", None):
        data["SecurityGroupIds"] = groups
    for interface in data.get("NetworkInterfaces", []):
        interface["Groups"] = interface.pop("SecurityGroups")
    inputs.clear()
    return made | {"LaunchTemplateData": data}


def _fleet(inputs: Inputs) -> Properties:
    configs = [
        {
            "LaunchTemplateSpecification": {
                "LaunchTemplateId": one["launchTemplateSpecification"]["id"],
                "Version": one["launchTemplateSpecification"]["version"],
            },
            "Overrides": pascal_case(one["overrides"]),
        }
        for one in inputs.pop("launchTemplateConfigs")
    ]
    made = {
        "Type": inputs.pop("fleetType"),
        "IamFleetRole": inputs.pop("iamFleetRole"),
        "InstanceInterruptionBehavior": inputs.pop("instanceInterruptionBehaviour"),
        "TerminateInstancesWithExpiration": inputs.pop("terminateInstancesOnDelete") == "true",
        "LaunchTemplateConfigs": configs,
        **pascal_case(inputs),
    }
    inputs.clear()
    return {"SpotFleetRequestConfigData": made}


def _table(inputs: Inputs) -> Properties:
    keys = {"HASH": inputs.pop("hashKey"), "RANGE": inputs.pop("rangeKey", None)}
    encryption = inputs.pop("serverSideEncryption")
    key = encryption.get("kmsKeyArn")
    made = {
        "AttributeDefinitions": [
            {"AttributeName": one["name"], "AttributeType": one["type"]} for one in inputs.pop("attributes")
        ],
        "KeySchema": [{"AttributeName": name, "KeyType": kind} for kind, name in keys.items() if name],
        "SSESpecification": {
            "SSEEnabled": encryption["enabled"],
            **({"SSEType": "KMS", "KMSMasterKeyId": key} if key else {}),
        },
        "PointInTimeRecoverySpecification": {
            "PointInTimeRecoveryEnabled": inputs.pop("pointInTimeRecovery")["enabled"]
        },
    }
    if "ttl" in inputs:
        made["TimeToLiveSpecification"] = pascal_case(inputs.pop("ttl"))
    return made


def _budget(inputs: Inputs) -> Properties:
    notifications = [
        {
            "Notification": pascal_case({k: v for k, v in one.items() if not k.startswith("subscriber")}),
            "Subscribers": [
                {"SubscriptionType": "SNS", "Address": arn} for arn in one["subscriberSnsTopicArns"]
            ],
        }
        for one in inputs.pop("notifications")
    ]
    budget = {
        "BudgetLimit": {"Amount": inputs.pop("limitAmount"), "Unit": inputs.pop("limitUnit")},
        "CostFilters": {one["name"]: one["values"] for one in inputs.pop("costFilters")},
        **pascal_case(inputs),
    }
    inputs.clear()
    return {"Budget": budget, "NotificationsWithSubscribers": notifications}


def _alarm(inputs: Inputs) -> Properties:
    def listed_names(dimensions: Inputs) -> list[Properties]:
        return [{"Name": name, "Value": value} for name, value in sorted(dimensions.items())]

    if "metricQueries" not in inputs:
        return {"Dimensions": listed_names(inputs.pop("dimensions"))}
    metrics = []
    for query in map(dict, inputs.pop("metricQueries")):
        if of := query.pop("metric", None):
            metric = {"Namespace": of["namespace"], "MetricName": of["metricName"]}
            metric["Dimensions"] = listed_names(of["dimensions"])
            query["metricStat"] = {"Metric": metric, "Period": of["period"], "Stat": of["stat"]}
        metrics.append(pascal_case(query))
    return {"Metrics": metrics}


def _metric_filter(inputs: Inputs) -> Properties:
    transformation = inputs.pop("metricTransformation")
    renamed = {"name": "MetricName", "namespace": "MetricNamespace", "value": "MetricValue"}
    made = {renamed.get(key, key[0].upper() + key[1:]): value for key, value in transformation.items()}
    if "DefaultValue" in made:
        made["DefaultValue"] = float(made["DefaultValue"])
    return {"MetricTransformations": [made]}


def _flow_log(inputs: Inputs) -> Properties:
    return {
        "ResourceId": inputs.pop("vpcId"),
        "ResourceType": "VPC",
        "DeliverLogsPermissionArn": inputs.pop("iamRoleArn"),
    }


def _function(inputs: Inputs) -> Properties:
    inputs.pop("code")  # an archive, which CloudFormation takes from a bucket
    return {
        "Code": {"S3Bucket": "bucket", "S3Key": "key"},
        "Environment": {"Variables": inputs.pop("environment")["variables"]},
    }


def _layer(inputs: Inputs) -> Properties:
    inputs.pop("code")
    return {"Content": {"S3Bucket": "bucket", "S3Key": "key"}}


def _repository(inputs: Inputs) -> Properties:
    [encryption] = inputs.pop("encryptionConfigurations")
    return {"EncryptionConfiguration": pascal_case(encryption)}


def _lifecycle(inputs: Inputs) -> Properties:
    rules = []
    for rule in map(dict, inputs["rules"]):
        prefix = rule.pop("filter", {}).get("prefix")
        rules.append(pascal_case(rule) | ({"Prefix": prefix} if prefix else {}))
        if expiration := rules[-1].pop("Expiration", None):
            rules[-1]["ExpirationInDays"] = expiration["Days"]
    return {"LifecycleConfiguration": {"Rules": rules}}


def _encryption(inputs: Inputs) -> Properties:
    rules = []
    for rule in map(dict, inputs["rules"]):
        default = dict(rule.pop("applyServerSideEncryptionByDefault"))
        if key := default.pop("kmsMasterKeyId", None):
            default["KMSMasterKeyID"] = key
        rules.append({"ServerSideEncryptionByDefault": pascal_case(default), **pascal_case(rule)})
    return {"BucketEncryption": {"ServerSideEncryptionConfiguration": rules}}


def _broker(inputs: Inputs) -> Properties:
    users = [
        # A template has no place for a value that is secret in the program.
        {"Username": one["username"], "Password": "{{resolve:secretsmanager:name}}"}
        for one in inputs.pop("users")
    ]
    return {"EngineType": inputs.pop("engineType").upper(), "Users": users}


def _cluster(inputs: Inputs) -> Properties:
    logs = [{"Type": one} for one in inputs.pop("enabledClusterLogTypes")]
    return {
        "BootstrapSelfManagedAddons": inputs.pop("bootstrapSelfManagedAddons"),
        "EncryptionConfig": [pascal_case(inputs.pop("encryptionConfig"))],
        "Logging": {"ClusterLogging": {"EnabledTypes": logs}},
    }


def _access(inputs: Inputs) -> Properties:
    return {"AccessPolicies": [pascal_case({key: inputs[key] for key in ("policyArn", "accessScope")})]}


def _addon(inputs: Inputs) -> Properties:
    created, updated = (inputs.pop(f"resolveConflictsOn{when}") for when in ("Create", "Update"))
    assert created == updated  # one property there
    return {"ResolveConflicts": created}


def _listed(pairs: dict[str, Any]) -> list[Properties]:
    return [{"Key": key, "Value": str(value).lower()} for key, value in pairs.items()]


def _balancer(inputs: Inputs) -> Properties:
    logs = inputs.pop("accessLogs")
    attributes = {
        "idle_timeout.timeout_seconds": inputs.pop("idleTimeout"),
        "routing.http.drop_invalid_header_fields.enabled": inputs.pop("dropInvalidHeaderFields"),
        "routing.http.preserve_host_header.enabled": inputs.pop("preserveHostHeader"),
        "access_logs.s3.enabled": logs["enabled"],
        "access_logs.s3.bucket": logs["bucket"],
    }
    return {
        "Scheme": "internal" if inputs.pop("internal") else "internet-facing",
        "LoadBalancerAttributes": _listed(attributes),
    }


def _target_group(inputs: Inputs) -> Properties:
    check = inputs.pop("healthCheck")
    attributes = {
        "deregistration_delay.timeout_seconds": inputs.pop("deregistrationDelay"),
        "load_balancing.algorithm.type": inputs.pop("loadBalancingAlgorithmType"),
    }
    return {
        "HealthCheckIntervalSeconds": check["interval"],
        "HealthCheckPath": check["path"],
        "HealthCheckPort": check["port"],
        "HealthCheckProtocol": check["protocol"],
        "HealthCheckTimeoutSeconds": check["timeout"],
        "HealthyThresholdCount": check["healthyThreshold"],
        "UnhealthyThresholdCount": check["unhealthyThreshold"],
        "Matcher": {"HttpCode": check["matcher"]},
        "TargetGroupAttributes": _listed(attributes),
    }


def _listener(inputs: Inputs) -> Properties:
    return {"Certificates": [{"CertificateArn": inputs.pop("certificateArn")}]}


def _dns_record(inputs: Inputs) -> Properties:
    [alias] = inputs.pop("aliases")
    return {
        "HostedZoneId": inputs.pop("zoneId"),
        "AliasTarget": {
            "DNSName": alias["name"],
            "HostedZoneId": alias["zoneId"],
            "EvaluateTargetHealth": alias["evaluateTargetHealth"],
        },
    }


def _public_access(inputs: Inputs) -> Properties:
    return {"PublicAccessBlockConfiguration": pascal_case({k: v for k, v in inputs.items() if k != "bucket"})}


def _target(inputs: Inputs) -> Properties:
    more = {key: value for key, value in inputs.items() if key not in ("rule", "targetId")}
    return {"Targets": [{"Id": inputs.get("targetId", "target"), **pascal_case(more)}]}


_POLICY: Final[dict[str, Any]] = {"rename": {"policy": "PolicyDocument"}, "json_inputs": ("policy",)}

TYPES: Final[dict[str, As | Part]] = {
    "aws:autoscaling/group:Group": As(
        "AWS::AutoScaling::AutoScalingGroup",
        "AutoScalingGroupName",
        rename={
            "protectFromScaleIn": "NewInstancesProtectedFromScaleIn",
            "targetGroupArns": "TargetGroupARNs",
            "vpcZoneIdentifiers": "VPCZoneIdentifier",
        },
        # The pool is a resource of its own there, and nothing there suspends a process.
        provider_inputs=(
            *("forceDelete", "instanceRefresh", "suspendedProcesses", "waitForCapacityTimeout", "warmPool"),
        ),
        shape=_group,
        tag_format=pascal_case,
    ),
    "aws:autoscaling/lifecycleHook:LifecycleHook": As(
        "AWS::AutoScaling::LifecycleHook",
        rename={"autoscalingGroupName": "AutoScalingGroupName", "name": "LifecycleHookName"},
    ),
    "aws:budgets/budget:Budget": As("AWS::Budgets::Budget", shape=_budget, tags="ResourceTags"),
    "aws:cloudwatch/dashboard:Dashboard": As("AWS::CloudWatch::Dashboard"),
    "aws:cloudwatch/eventRule:EventRule": As("AWS::Events::Rule", "Name", json_inputs=("eventPattern",)),
    "aws:cloudwatch/eventTarget:EventTarget": Part("aws:cloudwatch/eventRule:EventRule", "rule", _target),
    "aws:cloudwatch/logGroup:LogGroup": As("AWS::Logs::LogGroup", "LogGroupName", provider_inputs=("name",)),
    "aws:cloudwatch/logMetricFilter:LogMetricFilter": As(
        "AWS::Logs::MetricFilter",
        "FilterName",
        rename={"name": "FilterName", "pattern": "FilterPattern"},
        shape=_metric_filter,
    ),
    "aws:cloudwatch/metricAlarm:MetricAlarm": As(
        "AWS::CloudWatch::Alarm",
        "AlarmName",
        rename={"name": "AlarmName", "okActions": "OKActions"},
        shape=_alarm,
    ),
    "aws:dynamodb/table:Table": As("AWS::DynamoDB::Table", "TableName", shape=_table),
    "aws:ec2/eip:Eip": As("AWS::EC2::EIP"),
    "aws:ec2/flowLog:FlowLog": As("AWS::EC2::FlowLog", shape=_flow_log),
    "aws:ec2/internetGateway:InternetGateway": As("AWS::EC2::InternetGateway", provider_inputs=("vpcId",)),
    "aws:ec2/launchTemplate:LaunchTemplate": As(
        "AWS::EC2::LaunchTemplate",
        "LaunchTemplateName",
        provider_inputs=("updateDefaultVersion",),
        shape=_template,
        tags="TagSpecifications",
        tag_format=lambda tags: [{"ResourceType": "launch-template", "Tags": tag_list(tags)}],
    ),
    "aws:ec2/natGateway:NatGateway": As("AWS::EC2::NatGateway"),
    "aws:ec2/placementGroup:PlacementGroup": As("AWS::EC2::PlacementGroup"),
    "aws:ec2/route:Route": As("AWS::EC2::Route"),
    "aws:ec2/routeTable:RouteTable": As("AWS::EC2::RouteTable"),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": As("AWS::EC2::SubnetRouteTableAssociation"),
    "aws:ec2/securityGroup:SecurityGroup": As(
        "AWS::EC2::SecurityGroup", "GroupName", rename={"description": "GroupDescription"}
    ),
    "aws:ec2/spotFleetRequest:SpotFleetRequest": As(
        "AWS::EC2::SpotFleet",
        provider_inputs=("waitForFulfillment", "loadBalancers", "targetGroupArns"),
        shape=_fleet,
    ),
    "aws:ec2/subnet:Subnet": As("AWS::EC2::Subnet"),
    "aws:ec2/vpc:Vpc": As("AWS::EC2::VPC"),
    "aws:ec2/vpcEndpoint:VpcEndpoint": As("AWS::EC2::VPCEndpoint"),
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": Part(
        "aws:ecr/repository:Repository",
        "repository",
        lambda inputs: {"LifecyclePolicy": {"LifecyclePolicyText": inputs["policy"]}},
    ),
    "aws:ecr/repository:Repository": As("AWS::ECR::Repository", "RepositoryName", shape=_repository),
    "aws:efs/accessPoint:AccessPoint": As("AWS::EFS::AccessPoint", tags="AccessPointTags"),
    "aws:efs/fileSystem:FileSystem": As("AWS::EFS::FileSystem", tags="FileSystemTags"),
    "aws:efs/fileSystemPolicy:FileSystemPolicy": Part(
        "aws:efs/fileSystem:FileSystem",
        "fileSystemId",
        lambda inputs: {"FileSystemPolicy": json.loads(inputs["policy"])},
    ),
    "aws:efs/mountTarget:MountTarget": As("AWS::EFS::MountTarget"),
    "aws:eks/accessEntry:AccessEntry": As("AWS::EKS::AccessEntry"),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": Part(
        "aws:eks/accessEntry:AccessEntry", "clusterName:principalArn", _access
    ),
    "aws:eks/addon:Addon": As("AWS::EKS::Addon", shape=_addon),
    "aws:eks/cluster:Cluster": As(
        "AWS::EKS::Cluster", rename={"vpcConfig": "ResourcesVpcConfig"}, shape=_cluster
    ),
    "aws:eks/nodeGroup:NodeGroup": As(
        "AWS::EKS::Nodegroup",
        "NodegroupName",
        rename={"nodeRoleArn": "NodeRole", "subnetIds": "Subnets"},
        tag_format=lambda tags: dict(tags),
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": As("AWS::EKS::PodIdentityAssociation"),
    "aws:iam/instanceProfile:InstanceProfile": As(
        "AWS::IAM::InstanceProfile",
        "InstanceProfileName",
        shape=lambda inputs: {"Roles": [inputs.pop("role")]},
        tags="",
    ),
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": As(
        "AWS::IAM::OIDCProvider",
        rename={"clientIdLists": "ClientIdList", "thumbprintLists": "ThumbprintList"},
    ),
    "aws:iam/policy:Policy": As(
        "AWS::IAM::ManagedPolicy",
        "ManagedPolicyName",
        rename={"policy": "PolicyDocument"},
        json_inputs=("policy",),
        tags="",
    ),
    "aws:iam/role:Role": As(
        "AWS::IAM::Role",
        "RoleName",
        rename={"assumeRolePolicy": "AssumeRolePolicyDocument"},
        json_inputs=("assumeRolePolicy",),
    ),
    "aws:iam/rolePolicy:RolePolicy": As(
        "AWS::IAM::RolePolicy",
        "PolicyName",
        rename={"policy": "PolicyDocument", "role": "RoleName"},
        json_inputs=("policy",),
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": Part(
        "aws:iam/role:Role", "role", lambda inputs: {"ManagedPolicyArns": [inputs["policyArn"]]}
    ),
    "aws:kms/key:Key": As("AWS::KMS::Key", rename={"deletionWindowInDays": "PendingWindowInDays"}),
    "aws:lambda/eventSourceMapping:EventSourceMapping": As("AWS::Lambda::EventSourceMapping"),
    "aws:lambda/function:Function": As("AWS::Lambda::Function", "FunctionName", shape=_function),
    "aws:lambda/functionEventInvokeConfig:FunctionEventInvokeConfig": As(
        "AWS::Lambda::EventInvokeConfig", shape=lambda _: {"Qualifier": "$LATEST"}, tags=""
    ),
    "aws:lambda/layerVersion:LayerVersion": As(
        "AWS::Lambda::LayerVersion", "LayerName", shape=_layer, tags=""
    ),
    "aws:lambda/permission:Permission": As(
        "AWS::Lambda::Permission", rename={"function": "FunctionName"}, tags=""
    ),
    "aws:lb/listener:Listener": As("AWS::ElasticLoadBalancingV2::Listener", shape=_listener, tags=""),
    "aws:lb/loadBalancer:LoadBalancer": As(
        "AWS::ElasticLoadBalancingV2::LoadBalancer",
        "Name",
        rename={"loadBalancerType": "Type"},
        shape=_balancer,
    ),
    "aws:lb/targetGroup:TargetGroup": As(
        "AWS::ElasticLoadBalancingV2::TargetGroup", "Name", shape=_target_group
    ),
    "aws:mq/broker:Broker": As(
        "AWS::AmazonMQ::Broker", "BrokerName", provider_inputs=("applyImmediately",), shape=_broker
    ),
    "aws:route53/record:Record": As("AWS::Route53::RecordSet", shape=_dns_record),
    "aws:scheduler/schedule:Schedule": As("AWS::Scheduler::Schedule", "Name", tags=""),
    "aws:secretsmanager/secret:Secret": As(
        "AWS::SecretsManager::Secret", "Name", provider_inputs=("recoveryWindowInDays",)
    ),
    "aws:secretsmanager/secretVersion:SecretVersion": Part(
        "aws:secretsmanager/secret:Secret",
        "secretId",
        lambda inputs: {"SecretString": inputs["secretString"]},
    ),
    BUCKET: As("AWS::S3::Bucket", "BucketName", provider_inputs=("forceDestroy",)),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": Part(BUCKET, "bucket", _lifecycle),
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": Part(
        BUCKET, "bucket", lambda inputs: {"OwnershipControls": {"Rules": [pascal_case(inputs["rule"])]}}
    ),
    "aws:s3/bucketPolicy:BucketPolicy": As("AWS::S3::BucketPolicy", **_POLICY),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": Part(BUCKET, "bucket", _public_access),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": Part(
        BUCKET, "bucket", _encryption
    ),
    "aws:s3/bucketVersioning:BucketVersioning": Part(
        BUCKET,
        "bucket",
        lambda inputs: {"VersioningConfiguration": pascal_case(inputs["versioningConfiguration"])},
    ),
    "aws:sns/topic:Topic": As("AWS::SNS::Topic", "TopicName"),
    "aws:sns/topicPolicy:TopicPolicy": As(
        "AWS::SNS::TopicPolicy", shape=lambda inputs: {"Topics": [inputs.pop("arn")]}, **_POLICY
    ),
    "aws:sqs/queue:Queue": As(
        "AWS::SQS::Queue",
        "QueueName",
        rename={
            "receiveWaitTimeSeconds": "ReceiveMessageWaitTimeSeconds",
            "messageRetentionSeconds": "MessageRetentionPeriod",
            "visibilityTimeoutSeconds": "VisibilityTimeout",
        },
        json_inputs=("redrivePolicy",),
    ),
    "aws:sqs/queuePolicy:QueuePolicy": As(
        "AWS::SQS::QueuePolicy", shape=lambda inputs: {"Queues": [inputs.pop("queueUrl")]}, **_POLICY
    ),
    "aws:ssm/document:Document": As("AWS::SSM::Document", "Name", json_inputs=("content",)),
    "aws:ssm/parameter:Parameter": As(
        "AWS::SSM::Parameter", rename={"insecureValue": "Value"}, tag_format=lambda tags: dict(tags)
    ),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": As(
        "AWS::EC2::SecurityGroupEgress",
        rename={
            "securityGroupId": "GroupId",
            "cidrIpv4": "CidrIp",
            "referencedSecurityGroupId": "DestinationSecurityGroupId",
        },
        tags="",
    ),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": As(
        "AWS::EC2::SecurityGroupIngress",
        rename={
            "cidrIpv4": "CidrIp",
            "securityGroupId": "GroupId",
            "referencedSecurityGroupId": "SourceSecurityGroupId",
        },
        tags="",
    ),
}
