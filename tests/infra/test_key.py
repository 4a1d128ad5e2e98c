"""A customer-managed KMS key: what it encrypts, and permissions to use it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.infra.declared import ROOT, STACKS, Run, edited_stack, run

KEY = "arn:aws:kms:us-west-2:123456789012:key/0f0e0d0c-0b0a-0908-0706-050403020100"

Inputs = dict[str, Any]


def disks(template: Inputs) -> list[Any]:
    volumes = [mapping["ebs"] for mapping in template["blockDeviceMappings"]]
    return [volume.get("kmsKeyId") for volume in volumes if "snapshotId" not in volume]


def of_bucket(encryption: Inputs) -> list[Any]:
    return [rule["applyServerSideEncryptionByDefault"]["kmsMasterKeyId"] for rule in encryption["rules"]]


# What stores something, and where its key stands.
STORES: dict[str, Callable[[Inputs], list[Any]]] = {
    "aws:cloudwatch/logGroup:LogGroup": lambda it: [it["kmsKeyId"]],
    "aws:dynamodb/table:Table": lambda it: [it["serverSideEncryption"]["kmsKeyArn"]],
    "aws:ec2/launchTemplate:LaunchTemplate": disks,
    "aws:ecr/repository:Repository": lambda it: [one["kmsKey"] for one in it["encryptionConfigurations"]],
    "aws:efs/fileSystem:FileSystem": lambda it: [it["kmsKeyId"]],
    "aws:lambda/function:Function": lambda it: [it["kmsKeyArn"]],
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": of_bucket,
    "aws:sns/topic:Topic": lambda it: [it["kmsMasterKeyId"]],
    "aws:sqs/queue:Queue": lambda it: [it["kmsMasterKeyId"]],
}
# What stores nothing, or nothing that takes a key of one's own: settings, and what is named with a reason.
OTHERS = {
    *("BucketLifecycleConfiguration", "BucketOwnershipControls", "BucketPolicy"),
    *("BucketPublicAccessBlock", "BucketVersioning", "Budget", "Dashboard", "DefaultSecurityGroup"),
    *("EventTarget", "FileSystemPolicy", "FunctionEventInvokeConfig", "Group", "InstanceProfile"),
    *("LifecycleHook", "LifecyclePolicy", "MetricAlarm", "Permission", "QueuePolicy", "Role", "RolePolicy"),
    *("RolePolicyAttachment", "Route", "RouteTable", "RouteTableAssociation", "SecurityGroup"),
    *("SecurityGroupEgressRule", "SecurityGroupIngressRule", "Subnet", "TopicPolicy", "Vpc"),
    "EventRule",  # AWS's own bus, and no archive
    "Eip",  # an address
    "FlowLog",  # writes into a log group
    "InternetGateway",  # passes on
    "NatGateway",  # passes on
    "SpotFleetRequest",  # starts from launch templates
    "VpcEndpoint",  # passes on
    "AccessPoint",  # lies on its file system
    "MountTarget",  # passes on
    "EventSourceMapping",  # its key is for filters, and there are none
    "Bucket",  # its key stands in its encryption configuration
    "BucketObjectv2",  # encrypted as its bucket says
    "LayerVersion",  # public packages
    "Parameter",  # a String: only a SecureString takes a key
}


def with_key(stack: str) -> Run:
    return edited_stack({"kmsKeyArn": KEY}, stack)


@pytest.mark.parametrize("stack", STACKS)
def test_the_key_encrypts_every_store(stack: str) -> None:
    deployed = with_key(stack)
    stores = [
        one for one in deployed.declared if one["custom"] and one["type"].rpartition(":")[2] not in OTHERS
    ]
    unknown = {one["type"] for one in stores} - STORES.keys()
    assert not unknown, "does it store something? say so in STORES or OTHERS"
    for one in stores:
        keys = STORES[one["type"]](one["inputs"])
        assert set(keys) == {KEY}, one["name"]
    assert all(
        one["inputs"]["type"] == "String" for one in deployed.declared if "ssm/parameter" in one["type"]
    )
    encrypted = {
        one["inputs"]["bucket"] for one in stores if one["type"].endswith("ServerSideEncryptionConfiguration")
    }
    assert encrypted == {f"{deployed.physical(name)}-id" for name in deployed.of("Bucket")}


def test_a_queue_has_one_kind_of_encryption() -> None:
    for queue in with_key("dev").of("Queue").values():
        assert queue.get("sqsManagedSseEnabled") is None


def statements(deployed: Run, role: str) -> dict[str, dict[str, Any]]:
    policy = deployed.policy(role)
    return {one["Sid"]: one for one in policy["Statement"] if KEY in one["Resource"]}


def test_roles_may_use_the_key_through_what_they_call() -> None:
    deployed = with_key("research")

    def through(one: dict[str, Any]) -> list[str]:
        services: list[str] = one["Condition"]["StringLike"]["kms:ViaService"]
        return [name.partition(".")[0] for name in services]

    controller = statements(deployed, "controller-function")
    assert controller.keys() == {"UseKey"}
    assert through(controller["UseKey"]) == ["dynamodb", "lambda", "sqs"]
    [instance] = [name for name in deployed.of("RolePolicy") if name.endswith("-instance")]
    job = statements(deployed, instance)
    assert job.keys() == {"UseKey", "LendKeyToVolumes"}
    assert sorted(through(job["UseKey"])) == ["dynamodb", "ec2", "s3"]
    assert job["LendKeyToVolumes"]["Condition"]["Bool"] == {"kms:GrantIsForAWSResource": "true"}
    template = next(iter(deployed.of("LaunchTemplate")))
    assert deployed.agent(template)["volume"]["kmsKeyArn"] == KEY


def test_a_service_creates_no_volumes_and_no_grants() -> None:
    assert statements(with_key("dev"), "inference-instance").keys() == {"UseKey"}


def test_without_a_key_no_role_may_use_one() -> None:
    for policy in run("known").of("RolePolicy").values():
        assert "kms:" not in policy["policy"]


def test_the_sample_key_policy_allows_every_service_that_the_stack_uses() -> None:
    policy = json.loads((ROOT / "examples" / "key-policy.json").read_text("utf-8"))
    services = {name for one in policy["Statement"] for name in services_of(one)}
    deployed = with_key("prod")
    let_in = {
        name
        for kind in ("QueuePolicy", "TopicPolicy")
        for resource in deployed.of(kind).values()
        for one in json.loads(resource["policy"])["Statement"]
        for name in services_of(one)
    }
    assert let_in
    assert services == let_in | {"logs.us-west-2.amazonaws.com"}


def services_of(statement: dict[str, Any]) -> list[str]:
    principal = statement["Principal"]
    found = principal.get("Service", []) if isinstance(principal, dict) else []
    return [found] if isinstance(found, str) else list(found)
