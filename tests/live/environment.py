"""A shipped environment, deployed, as plain boto3 sees it."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from pulumi_on_moto import deploy, load
from pulumi_on_moto.program.record import Deployment
from pulumi_on_moto.sandbox import ACCOUNT, AwsClients, sandbox

ROOT = Path(__file__).resolve().parents[2]


def network(clients: AwsClients, deployment: Deployment) -> dict[str, Any]:
    ec2 = clients("ec2")
    here = [{"Name": "vpc-id", "Values": [deployment.outputs["vpcId"]]}]
    endpoints = ec2.describe_vpc_endpoints(Filters=here)["VpcEndpoints"]
    [default] = ec2.describe_security_groups(Filters=[*here, {"Name": "group-name", "Values": ["default"]}])[
        "SecurityGroups"
    ]
    return {
        "gateways": sorted(e["ServiceName"] for e in endpoints if e["VpcEndpointType"] == "Gateway"),
        "interfaces": [
            (len(e["SubnetIds"]), len(e["Groups"]), e["PrivateDnsEnabled"])
            for e in endpoints
            if e["VpcEndpointType"] == "Interface"
        ],
        "nats": len(ec2.describe_nat_gateways(Filters=here)["NatGateways"]),
        "subnets": len(ec2.describe_subnets(Filters=here)["Subnets"]),
        "default_rules": default["IpPermissions"] + default["IpPermissionsEgress"],
        "flow_logs": [
            (log["ResourceId"] == deployment.outputs["vpcId"], log["TrafficType"], log["LogDestinationType"])
            for log in ec2.describe_flow_logs()["FlowLogs"]
        ],
    }


def monitoring(clients: AwsClients, deployment: Deployment) -> dict[str, Any]:
    cloudwatch, budgets = clients("cloudwatch"), clients("budgets")
    alarms = cloudwatch.describe_alarms()["MetricAlarms"]
    body = cloudwatch.get_dashboard(DashboardName=deployment.outputs["dashboard"])["DashboardBody"]
    limits = budgets.describe_budgets(AccountId=ACCOUNT).get("Budgets", [])
    return {
        "alarms": {re.sub(r"-[0-9a-f]{7}$", "", alarm["AlarmName"]): alarm["MetricName"] for alarm in alarms},
        "heard_by": sorted({action for alarm in alarms for action in alarm["AlarmActions"]}),
        "topic": deployment.outputs["alarmTopic"],
        "widgets": len(json.loads(body)["widgets"]),
        "budgets": [(b["BudgetLimit"], b["CostFilters"]) for b in limits],
        "notifications": [
            len(
                budgets.describe_notifications_for_budget(AccountId=ACCOUNT, BudgetName=b["BudgetName"])[
                    "Notifications"
                ]
            )
            for b in limits
        ],
    }


def fleet(clients: AwsClients) -> list[dict[str, Any]]:
    found = clients("ec2").describe_spot_fleet_requests()["SpotFleetRequestConfigs"]
    return [
        {
            "id": one["SpotFleetRequestId"],
            "target": one["SpotFleetRequestConfig"]["TargetCapacity"],
            "strategy": one["SpotFleetRequestConfig"]["AllocationStrategy"],
        }
        for one in found
    ]


def storage(clients: AwsClients, deployment: Deployment) -> dict[str, Any]:
    efs, s3, ecr = clients("efs"), clients("s3"), clients("ecr")
    files = deployment.outputs.get("fileSystemId")
    seen: dict[str, Any] = {"buckets": {}, "repositories": [], "files": None}
    if files:
        [system] = efs.describe_file_systems(FileSystemId=files)["FileSystems"]
        points = efs.describe_access_points(FileSystemId=files)["AccessPoints"]
        policies = efs.describe_lifecycle_configuration(FileSystemId=files)["LifecyclePolicies"]
        policy = json.loads(efs.describe_file_system_policy(FileSystemId=files)["Policy"])
        seen["files"] = {
            "encrypted": system["Encrypted"],
            "mount_targets": len(efs.describe_mount_targets(FileSystemId=files)["MountTargets"]),
            "access_points": sorted(point["RootDirectory"]["Path"] for point in points),
            "lifecycle": policies,
            "effects": [statement["Effect"] for statement in policy["Statement"]],
        }
    for name, bucket in deployment.outputs.get("buckets", {}).items():
        rules = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
        encryption = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
        seen["buckets"][name] = {
            "private": s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"],
            "versions": s3.get_bucket_versioning(Bucket=bucket)["Status"],
            "rules": sorted(rule["ID"] for rule in rules),
            "encryption": encryption[0]["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"],
            "tags": {tag["Key"]: tag["Value"] for tag in s3.get_bucket_tagging(Bucket=bucket)["TagSet"]},
            "denied": json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"])["Statement"][0]["Effect"],
        }
    for repository in ecr.describe_repositories()["repositories"]:
        lifecycle = ecr.get_lifecycle_policy(repositoryName=repository["repositoryName"])
        seen["repositories"].append(
            {
                "tags": repository["imageTagMutability"],
                "scanned": repository["imageScanningConfiguration"]["scanOnPush"],
                "keeps": json.loads(lifecycle["lifecyclePolicyText"])["rules"][0]["selection"]["countNumber"],
            }
        )
    return seen


def seen(stack: str) -> dict[str, Any]:
    with sandbox("us-west-2") as clients:
        deployment = deploy(clients, load(ROOT, stack))
        made = [resource for resource in deployment.resources if not resource.is_component]
        return {
            "types": Counter(resource.type for resource in made),
            "no_effect": sorted({f"{r.type}: {key}" for r in made for key in r.no_effect}),
            "groups": deployment.outputs["groups"],
            "network": network(clients, deployment),
            "monitoring": monitoring(clients, deployment),
            "storage": storage(clients, deployment),
            "fleets": fleet(clients),
        }
