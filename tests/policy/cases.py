"""Violating and compliant resources for each rule, as a program would declare them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from contracts.group import config
from policy.rules.model import UNKNOWN, ExternalFacts, Subject

NOW: Final = datetime(2026, 11, 22, tzinfo=UTC)
OWN, FOREIGN = "123456789012", "999999999999"
OLD, YOUNG = "ami-00000000000000001", "ami-00000000000000002"
CREATED_AT: Final = {OLD: NOW - timedelta(days=91), YOUNG: NOW - timedelta(days=90)}
FACTS: Final = ExternalFacts(
    NOW,
    lambda image, region: CREATED_AT.get(image),
    lambda name, region: {"g6.xlarge": 0.8, "g5.xlarge": 1.006}.get(name) if region != "mars-1" else None,
    lambda *_: OWN,
)
_KINDS: Final = {
    "autoscaling": "Group",
    "budgets": "Budget",
    "cloudwatch": "EventPermission MetricAlarm",
    "dynamodb": "Table",
    "ebs": "Volume",
    "ec2": "AmiLaunchPermission Instance LaunchConfiguration LaunchTemplate SecurityGroup SecurityGroupRule "
    "SpotFleetRequest VpcEndpointServiceAllowedPrincipal",
    "ecr": "RepositoryPolicy",
    "ecrpublic": "PublicRepository",
    "efs": "FileSystem FileSystemPolicy",
    "eks": "AccessEntry Cluster NodeGroup",
    "iam": "GroupPolicy GroupPolicyAttachment Policy PolicyAttachment Role RolePolicy RolePolicyAttachment "
    "RolePolicyAttachmentsExclusive UserPolicy UserPolicyAttachment",
    "kms": "Grant Key",
    "lambda": "FunctionUrl Permission",
    "lb": "Listener LoadBalancer",
    "mq": "Broker",
    "ram": "PrincipalAssociation",
    "s3": "AccessPoint Bucket BucketAcl BucketAclV2 BucketObjectv2 BucketPolicy BucketPublicAccessBlock",
    "secretsmanager": "SecretPolicy",
    "sns": "TopicPolicy TopicSubscription",
    "sqs": "Queue QueuePolicy",
    "ssm": "Document Parameter",
    "vpc": "SecurityGroupIngressRule",
    "redshift": "Warehouse",
}
"""Resource types of the provider by its module."""
TYPES: Final = {
    kind: f"aws:{module}/{kind[0].lower()}{kind[1:]}:{kind}"
    for module, kinds in _KINDS.items()
    for kind in kinds.split()
} | {
    "EC2NodeClass": "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass",
    "NodePool": "kubernetes:karpenter.sh/v1:NodePool",
    "RdsInstance": "aws:rds/instance:Instance",
    "RdsSnapshot": "aws:rds/snapshot:Snapshot",
}
AWS_POLICY: Final = "arn:aws:iam::aws:policy/"
TAGS: Final = {"gpu-spot:stack": "dev", "gpu-spot:group": "inference"}


def subject(kind: str, name: str = "inference-primary", *, protected: bool = False, **inputs: Any) -> Subject:
    urn = f"urn:pulumi:dev::gpu-spot::{TYPES[kind]}::{name}"
    return Subject(TYPES[kind], name, urn, inputs, protected, "us-west-2")


def profile(name: str, **tags: str) -> Subject:
    """Return an instance profile of this physical name."""
    urn = "urn:pulumi:dev::gpu-spot::t::inference"
    inputs = {"name": name, "tags": {**TAGS, **tags}}
    return Subject("aws:iam/instanceProfile:InstanceProfile", "inference", urn, inputs, True)


def template(**inputs: Any) -> Subject:
    disk = {"deviceName": "/dev/sda1", "ebs": {"encrypted": "true"}}
    given = {"metadataOptions": {"httpTokens": "required"}, "blockDeviceMappings": [disk], "tags": TAGS}
    return subject("LaunchTemplate", **given | inputs)


def group(
    types: int = 2, zones: int = 2, spot: bool = True, most: int = 10, name: str = "inference-primary"
) -> Subject:
    names = ["g6.xlarge", "g5.xlarge", "g6.2xlarge", "g6.7xlarge"][:types]
    policy = {
        "instancesDistribution": {
            "onDemandBaseCapacity": 0,
            "onDemandPercentageAboveBaseCapacity": 0 if spot else 100,
        },
        "launchTemplate": {"overrides": [{"instanceType": one} for one in names]},
    }
    tags = [{"key": key, "value": value} for key, value in TAGS.items()]
    subnets = [f"subnet-{place}" for place in range(zones)]
    return subject(
        "Group", name, mixedInstancesPolicy=policy, maxSize=most, vpcZoneIdentifiers=subnets, tags=tags
    )


def shared_group(above: Any, most: int, weight: Any = 1) -> Subject:
    """Return a group of one type, with this On-Demand percentage."""
    shares = {"onDemandPercentageAboveBaseCapacity": above}
    template = {"overrides": [{"instanceType": "g6.xlarge", "weightedCapacity": weight}]}
    policy = {"instancesDistribution": shares, "launchTemplate": template}
    zones = ["subnet-1", "subnet-2", "subnet-3"]
    return subject(
        "Group", "any", mixedInstancesPolicy=policy, maxSize=most, vpcZoneIdentifiers=zones, tags=TAGS
    )


def chosen_by(types: list[str] | None) -> Subject:
    """Return an On-Demand group whose types EC2 chooses by requirements."""
    requirements: dict[str, Any] = {"vCpuCount": {"min": 4}, "allowedInstanceTypes": types}
    template = {"overrides": [{"instanceRequirements": requirements}]}
    return subject("Group", "any", mixedInstancesPolicy={"launchTemplate": template}, maxSize=10, tags=TAGS)


def fleet(types: int, zones: int) -> Subject:
    overrides = [
        {"instanceType": f"g{5 + kind}.xlarge", "subnetId": f"subnet-{place}"}
        for kind in range(types)
        for place in range(zones)
    ]
    return subject("SpotFleetRequest", launchTemplateConfigs=[{"overrides": overrides}], tags=TAGS)


def sized_fleet(fleet_type: str, on_demand: int, weight: int = 1) -> Subject:
    """Return a Spot Fleet as declared: one of type maintain is empty."""
    override = {"instanceType": "g5.xlarge", "subnetId": "subnet-0", "weightedCapacity": weight}
    return subject(
        "SpotFleetRequest",
        fleetType=fleet_type,
        targetCapacity=10 if fleet_type == "request" else 0,
        onDemandTargetCapacity=on_demand,
        launchTemplateConfigs=[{"overrides": [override]}],
        tags=TAGS,
    )


def controlled_fleet(base: int, percentage: int, most: int = 20) -> list[Subject]:
    """Return a fleet of type maintain with the parameter that the controller divides it by."""
    settings = config.GroupConfig(
        kind="spot-fleet",
        primary="sfr-1",
        base=base,
        spot_percentage=percentage,
        maximum=most,
        slots={"g5.xlarge": 1},
        policy=config.PolicyChoice("expected-cost"),
    )
    parameter = subject("Parameter", "inference-config", insecureValue=config.dumps(settings), tags=TAGS)
    return [sized_fleet("maintain", 0), parameter]


def allowing(kind: str = "RolePolicy", **statement: Any) -> Subject:
    document = {"Statement": [{"Sid": "Do", "Effect": "Allow", **statement}]}
    return subject(kind, policy=json.dumps(document))


Form = tuple[str, list[Subject]]
"""A rule that must report a program, and the program."""

BUDGET: Final = subject("Budget", "budget")
ALARM: Final = subject(
    "MetricAlarm", "inference-shortage", alarmActions=["arn:aws:sns:us-west-2:123456789012:alarms"], tags=TAGS
)


def balancer(**inputs: Any) -> Subject:
    declared = {"internal": True, "dropInvalidHeaderFields": True, "accessLogs": {"enabled": True}}
    return subject("LoadBalancer", "inference-http", **{**declared, "tags": TAGS, **inputs})


def listener(protocol: str = "HTTPS", policy: str | None = "ELBSecurityPolicy-TLS13-1-2-2021-06") -> Subject:
    return subject("Listener", "inference-http", protocol=protocol, sslPolicy=policy, tags=TAGS)


def admitted(port: int = 443) -> Subject:
    """Return a rule that admits the internet to a service's load balancer."""
    return subject("SecurityGroupIngressRule", cidrIpv4="0.0.0.0/0", fromPort=port, toPort=port, tags=TAGS)


PUBLIC: Final = {"publicServices": ["inference"]}

Case = tuple[dict[str, Any], list[Subject]]
"""RuleSettings of the rule, and a program."""

VIOLATING: Final[dict[str, list[Case]]] = {
    "no-ingress-from-anywhere": [
        ({}, [subject("SecurityGroupIngressRule", cidrIpv4="0.0.0.0/0")]),
        ({}, [subject("SecurityGroupIngressRule", cidrIpv6="::/0")]),
        ({}, [subject("SecurityGroup", ingress=[{"cidrBlocks": ["10.0.0.0/8", "0.0.0.0/0"]}], tags=TAGS)]),
        ({}, [admitted()]),
        (PUBLIC, [admitted(80)]),
        ({"publicServices": ["chat"]}, [admitted()]),
    ],
    "no-wildcards": [
        ({}, [allowing(Action="s3:*", Resource="arn:aws:s3:::data")]),
        ({}, [allowing(Action=["ec2:DescribeInstances", "ec2:TerminateInstances"], Resource="*")]),
        ({}, [allowing(NotAction="iam:PassRole", Resource="arn:aws:s3:::data")]),
        ({}, [allowing("QueuePolicy", Principal="*", Action="sqs:SendMessage", Resource="arn:queue")]),
        ({}, [allowing(Action=["ec2:DeleteNetworkInterface", "ec2:RunInstances"], Resource=["*"])]),
    ],
    "encrypted": [
        ({}, [template(blockDeviceMappings=[{"deviceName": "/dev/sdk", "ebs": {"volumeSize": 10}}])]),
        ({}, [template(blockDeviceMappings=[])]),
        ({}, [subject("FileSystem", encrypted=False, tags=TAGS)]),
        ({}, [subject("Queue", tags=TAGS)]),
    ],
    "no-ingress-in-total": [
        (
            {},
            [
                subject("SecurityGroupIngressRule", half, securityGroupId="sg-1", cidrIpv4=half)
                for half in ("0.0.0.0/1", "128.0.0.0/1")
            ],
        )
    ],
    "no-public-endpoints": [
        ({}, [subject("FunctionUrl", authorizationType="NONE")]),
        ({}, [subject("Cluster", vpcConfig={"subnetIds": []})]),
        ({}, [subject("Broker", publiclyAccessible=True, tags=TAGS)]),
        ({}, [balancer(internal=False)]),
        ({"publicServices": ["chat"]}, [balancer(internal=None)]),
    ],
    "load-balancers": [
        ({}, [balancer(accessLogs=None)]),
        ({}, [balancer(accessLogs={"enabled": False})]),
        ({}, [balancer(dropInvalidHeaderFields=None)]),
        ({}, [balancer(internal=False), listener("HTTP", None)]),
        ({}, [balancer(internal=UNKNOWN), listener("HTTP", None)]),
        ({}, [balancer(), listener(policy="ELBSecurityPolicy-2016-08")]),
        ({}, [balancer(), listener(policy="ELBSecurityPolicy-TLS13-1-0-2021-06")]),
        ({}, [balancer(), listener(policy=None)]),
    ],
    "managed-policies": [
        ({}, [subject("RolePolicyAttachment", policyArn=f"{AWS_POLICY}AdministratorAccess")])
    ],
    "foreign-accounts": [
        ({}, [allowing("QueuePolicy", Principal={"AWS": FOREIGN}, Action="sqs:SendMessage", Resource="*")]),
        ({"accounts": [FOREIGN]}, [subject("Role", assumeRolePolicy={"Principal": {"AWS": "888888888888"}})]),
    ],
    "regions": [({"allowed": ["eu-west-1"]}, [subject("Table", protected=True, tags=TAGS)])],
    "instance-types": [({"allowed": ["g5.*"]}, [group()])],
    "protected": [({}, [subject("Table", tags=TAGS)]), ({}, [subject("Bucket", tags=TAGS)])],
    "imdsv2": [
        ({}, [template(metadataOptions={"httpTokens": "optional"})]),
        ({}, [template(metadataOptions=None)]),
    ],
    "image-age": [({}, [template(imageId=OLD)]), ({"maximumDays": 10}, [template(imageId=YOUNG)])],
    "capacity-pools": [
        ({}, [group(types=1, zones=2)]),
        ({"minimum": 7}, [group(types=2, zones=3)]),
        ({}, [fleet(types=2, zones=1)]),
    ],
    "on-demand-ceiling": [
        ({"maximumUsdPerHour": 9.9}, [group(spot=False), group()]),
        ({"maximumUsdPerHour": 9.9}, [group(types=3, spot=False)]),
        ({"maximumUsdPerHour": 999.0}, [group(types=4, spot=False)]),  # the last does not exist
        ({"maximumUsdPerHour": 999.0}, [replace(group(spot=False), region="mars-1")]),
        ({"maximumUsdPerHour": 999.0}, [replace(sized_fleet("request", 1), region="mars-1")]),
        ({"maximumUsdPerHour": 999.0}, [chosen_by(["g6.xlarge", "g7.xlarge"])]),
        ({"maximumUsdPerHour": 999.0}, [chosen_by(["g6.*"])]),
        ({"maximumUsdPerHour": 999.0}, [chosen_by(None)]),
        ({"maximumUsdPerHour": 999.0}, [subject("Group", "plain", maxSize=1, tags=TAGS)]),
        ({"maximumUsdPerHour": 9.9}, [chosen_by(["g6.xlarge", "g5.xlarge"])]),
        # At 1.006 USD an hour: 10 as requested; a half of at most 20; a base of 4 and 38 % of 16, rounded up.
        ({"maximumUsdPerHour": 10.05}, [sized_fleet("request", 10)]),
        ({"maximumUsdPerHour": 10.05}, controlled_fleet(0, 50)),
        ({"maximumUsdPerHour": 11.06}, controlled_fleet(4, 62)),
        ({"maximumUsdPerHour": 20.0}, [group(spot=False), *controlled_fleet(0, 50)]),
        ({"maximumUsdPerHour": 1.59}, [shared_group(50, most=3)]),  # a half of 3, rounded up as AWS does
    ],
    "names": [({}, [profile("inference-0a1b2c3")]), ({}, [profile("gpu-spot-team-inference")])],
    "tags": [({}, [subject("Queue", tags={"owner": "us"})]), ({"required": ["owner"]}, [template()])],
    "budget-and-alarm": [({}, [group(), ALARM]), ({}, [group(), BUDGET])],
    "covered": [({}, [subject("Warehouse")])],
}

COMPLIANT: Final[dict[str, list[Case]]] = {
    "no-ingress-from-anywhere": [
        (
            {},
            [subject("SecurityGroupIngressRule", cidrIpv4="10.0.0.0/8"), subject("SecurityGroup", tags=TAGS)],
        ),
        ({}, [subject("SecurityGroup", egress=[{"cidrBlocks": ["0.0.0.0/0"]}], tags=TAGS)]),
        (PUBLIC, [admitted()]),
    ],
    "no-wildcards": [
        ({}, [allowing(Action="s3:GetObject", Resource="arn:aws:s3:::data/*")]),
        ({}, [allowing(Action="ec2:DescribeInstances", Resource="*")]),
        ({}, [allowing(Action=["ec2:DeleteNetworkInterface", "ec2:DescribeSubnets"], Resource="*")]),
        (
            {},
            [
                subject(
                    "RolePolicy",
                    policy=json.dumps({"Statement": {"Effect": "Deny", "Action": "*", "Resource": "*"}}),
                )
            ],
        ),
    ],
    "encrypted": [
        (
            {},
            [template(), subject("FileSystem", encrypted=True), subject("Queue", sqsManagedSseEnabled=True)],
        ),
        ({}, [subject("Queue", kmsMasterKeyId="alias/own")]),
        ({}, [template(blockDeviceMappings=[{"deviceName": "/dev/sdk", "ebs": {"snapshotId": "snap-1"}}])]),
    ],
    "no-ingress-in-total": [
        (
            {},
            [
                subject("SecurityGroupIngressRule", part, securityGroupId="sg-1", cidrIpv4=part)
                for part in ("203.0.113.0/24", "10.0.0.0/8", "172.16.0.0/12")
            ],
        ),
        (PUBLIC, [admitted()]),
    ],
    "no-public-endpoints": [
        ({}, [subject("FunctionUrl", authorizationType="AWS_IAM"), subject("Broker", tags=TAGS)]),
        ({}, [subject("Cluster", vpcConfig={"publicAccessCidrs": ["203.0.113.0/24"]})]),
        ({}, [subject("Permission", principal="*", sourceArn="arn:aws:s3:::data")]),
        ({}, [balancer(), balancer(internal=UNKNOWN)]),
        (PUBLIC, [balancer(internal=False)]),
    ],
    "load-balancers": [
        ({}, [balancer(), listener("HTTP", None)]),
        ({}, [balancer(internal=False), listener()]),
        ({}, [balancer(accessLogs=UNKNOWN), listener(policy=UNKNOWN)]),
        ({}, [balancer(loadBalancerType="network", accessLogs=None)]),
    ],
    "managed-policies": [
        ({}, [subject("RolePolicyAttachment", policyArn=f"{AWS_POLICY}AmazonEKS_CNI_Policy")]),
        ({}, [subject("RolePolicyAttachment", policyArn="arn:aws:iam::123456789012:policy/ours")]),
        (
            {"managedPolicies": ["AmazonS3ReadOnlyAccess"]},
            [subject("RolePolicyAttachment", policyArn=f"{AWS_POLICY}AmazonS3ReadOnlyAccess")],
        ),
    ],
    "foreign-accounts": [
        ({}, [allowing("QueuePolicy", Principal={"AWS": OWN}, Action="sqs:SendMessage", Resource="*")]),
        ({"accounts": [FOREIGN]}, [subject("AmiLaunchPermission", accountId=FOREIGN)]),
        (
            {},
            [allowing(Action="ecr:BatchGetImage", Resource=f"arn:aws:ecr:us-west-2:{FOREIGN}:repository/a")],
        ),
        ({}, [subject("BucketPolicy", policy={"Statement": {"Effect": "Deny", "Principal": FOREIGN}})]),
        ({}, [allowing(Action="sqs:A", Resource="a", Condition={"StringNotEquals": {"aws:A": FOREIGN}})]),
    ],
    "regions": [({"allowed": ["us-west-2"]}, [group()]), ({}, [group()])],
    "instance-types": [({"allowed": ["g5.*", "g6.*"]}, [group(), fleet(2, 2)]), ({}, [group()])],
    "protected": [({}, [subject("Table", protected=True), subject("Bucket", forceDestroy=True)])],
    "imdsv2": [({}, [template()])],
    "image-age": [
        ({}, [template(imageId=YOUNG)]),
        ({}, [template(imageId="resolve:ssm:/aws/service/image")]),
    ],
    "capacity-pools": [({}, [group(types=2, zones=2)]), ({}, [fleet(2, 2)]), ({}, [group(1, 1, spot=False)])],
    "on-demand-ceiling": [
        ({"maximumUsdPerHour": 10.1}, [group(spot=False), group()]),
        ({}, [group(spot=False, most=99), chosen_by(None)]),  # without a maximum nothing is checked
        ({"maximumUsdPerHour": 10.1}, [chosen_by(["g6.xlarge", "g5.xlarge"])]),
        ({"maximumUsdPerHour": 10.1}, [replace(group(), region="mars-1")]),  # Spot alone
        ({"maximumUsdPerHour": 10.07}, [sized_fleet("request", 10)]),
        ({"maximumUsdPerHour": 2.52}, [sized_fleet("request", 10, weight=4)]),
        ({"maximumUsdPerHour": 10.07}, controlled_fleet(0, 50)),
        ({"maximumUsdPerHour": 11.07}, controlled_fleet(4, 62)),
        ({"maximumUsdPerHour": 0.01}, controlled_fleet(0, 100)),
        ({"maximumUsdPerHour": 20.13}, [group(spot=False), *controlled_fleet(0, 50)]),
        ({"maximumUsdPerHour": 1.61}, [shared_group(50, most=3)]),
        ({"maximumUsdPerHour": 0.01}, [shared_group(UNKNOWN, most=3), shared_group(100, 3, UNKNOWN)]),
    ],
    "names": [
        ({}, [template(), profile("gpu-spot-dev-inference")]),
        # As after `pulumi stack rename`, with the old name as `stackName`.
        ({}, [profile("gpu-spot-old-inference", **{"gpu-spot:stack": "old"})]),
    ],
    "tags": [({}, [template(), group()]), ({"required": ["gpu-spot:group"]}, [template()])],
    "budget-and-alarm": [({}, [group(), ALARM, BUDGET]), ({}, [subject("Table")])],
    "covered": [({}, [template(), group(), BUDGET])],
}
