"""DynamoDB, Parameter Store and EFS: what is remembered, told and shared."""

from __future__ import annotations

import json
from typing import Any

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.lab import TAG, Falsified, Lab


def _table(lab: Lab, what: str) -> str:
    """Make a table of one key and return its name once it is active."""
    client, name = lab.clients("dynamodb"), lab.name(what)
    client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "group", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "group", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
        Tags=lab.tags,
    )
    lab.until(
        lambda: client.describe_table(TableName=name)["Table"]["TableStatus"] == "ACTIVE",
        "the table is active",
    )
    return name


def _write(lab: Lab, table: str, version: int) -> None:
    """Write as ``lambdas/aws/memory.py`` does: over one version and no other."""
    lab.clients("dynamodb").put_item(
        TableName=table,
        Item={"group": {"S": "one"}, "version": {"N": str(version + 1)}},
        ConditionExpression="attribute_not_exists(#k) OR #v = :v",
        ExpressionAttributeNames={"#k": "group", "#v": "version"},
        ExpressionAttributeValues={":v": {"N": str(version)}},
    )


def _put(lab: Lab, leaf: str, value: str = "1") -> None:
    lab.clients("ssm").put_parameter(
        Name=f"/gpu-spot-check/{lab.run}/{leaf}", Value=value, Type="String", Tags=lab.tags
    )


@assumes("PutItem, ConditionExpression", "lambdas/aws/memory.py", "the second write is accepted")
def conditional_write(lab: Lab) -> str:
    """Who writes over an old version is refused with ConditionalCheckFailedException."""
    table = _table(lab, "conflict")
    _write(lab, table, 0)
    _write(lab, table, 1)
    return lab.refused(lambda: _write(lab, table, 1), "ConditionalCheckFailedException")


@assumes("UpdateItem", "userdata/agent/aws/registry.py", "no item, or another")
def update_makes_the_item(lab: Lab) -> str:
    """UpdateItem makes an item that is not there, and a consistent read shows it at once."""
    table, client = _table(lab, "upsert"), lab.clients("dynamodb")
    client.update_item(
        TableName=table,
        Key={"group": {"S": "one"}},
        UpdateExpression="SET since = if_not_exists(since, :now)",
        ExpressionAttributeValues={":now": {"N": "1"}},
    )
    found = client.get_item(TableName=table, Key={"group": {"S": "one"}}, ConsistentRead=True).get("Item")
    if found != {"group": {"S": "one"}, "since": {"N": "1"}}:
        raise Falsified(f"the item is {found}")
    return "made and read at once"


@assumes("GetParametersByPath", "lambdas/aws/settings.py", "more in a page")
def pages_of_ten(lab: Lab) -> str:
    """GetParametersByPath gives at most ten in a page, below the path as deep as they lie."""
    for turn in range(11):
        _put(lab, f"pages/{turn % 2}/{turn}")
    found = lab.clients("ssm").get_parameters_by_path(Path=f"/gpu-spot-check/{lab.run}/pages", Recursive=True)
    if len(found["Parameters"]) > 10 or not found.get("NextToken"):
        raise Falsified(f"{len(found['Parameters'])} in the first page")
    return f"{len(found['Parameters'])} of 11 in the first page"


@assumes(
    "PutParameter",
    "infra/components/capacity/capacity_group.py",
    "a longer one is accepted",
    unplayable="moto takes values of any length",
)
def longest_parameter(lab: Lab) -> str:
    """A standard parameter holds 4096 characters and no more."""
    _put(lab, "long", "x" * 4096)
    return lab.refused(lambda: _put(lab, "longer", "x" * 4097), "4096", "Standard tier", "standard")


@assumes(
    'EFS user guide, "Using IAM to control access to file systems"',
    "infra/iam/resource_policies.py",
    "it is refused",
)
def policy_of_files(lab: Lab) -> str:
    """EFS takes a policy that allows mounts only through mount targets."""
    client = lab.clients("efs")
    made = client.create_file_system(CreationToken=lab.name("files"), Encrypted=True, Tags=lab.tags)
    identity = made["FileSystemId"]

    def available() -> bool:
        [found] = client.describe_file_systems(FileSystemId=identity)["FileSystems"]
        return bool(found["LifeCycleState"] == "available")

    lab.until(available, "the file system is available")
    statement: dict[str, Any] = {
        "Effect": "Allow",
        "Principal": {"AWS": "*"},
        "Action": ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"],
        "Resource": made["FileSystemArn"],
        "Condition": {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}},
    }
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    lab.accepted(lambda: client.put_file_system_policy(FileSystemId=identity, Policy=document))
    kept = json.loads(client.describe_file_system_policy(FileSystemId=identity)["Policy"])
    if kept["Statement"][0].get("Condition") != statement["Condition"]:
        raise Falsified(f"kept is {kept}")
    return f"accepted, tag {TAG} on it"
