"""DynamoDB, Parameter Store and EFS."""

from __future__ import annotations

import json
from typing import Any

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.aws_test_bed import TAG, AwsTestBed, Falsified


def _create_table(test_bed: AwsTestBed, suffix: str) -> str:
    """Create a table with one key and return its name once it is active."""
    client, name = test_bed.clients("dynamodb"), test_bed.resource_name(suffix)
    client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "group", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "group", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
        Tags=test_bed.tags,
    )
    test_bed.wait_until(
        lambda: client.describe_table(TableName=name)["Table"]["TableStatus"] == "ACTIVE",
        "the table is active",
    )
    return name


def _write(test_bed: AwsTestBed, table: str, version: int) -> None:
    """Write as ``lambdas/aws/memory.py`` does: conditional on the previous version."""
    test_bed.clients("dynamodb").put_item(
        TableName=table,
        Item={"group": {"S": "one"}, "version": {"N": str(version + 1)}},
        ConditionExpression="attribute_not_exists(#k) OR #v = :v",
        ExpressionAttributeNames={"#k": "group", "#v": "version"},
        ExpressionAttributeValues={":v": {"N": str(version)}},
    )


def _put_parameter(test_bed: AwsTestBed, name: str, value: str = "1") -> None:
    test_bed.clients("ssm").put_parameter(
        Name=f"/gpu-spot-check/{test_bed.run}/{name}", Value=value, Type="String", Tags=test_bed.tags
    )


@assumes("PutItem, ConditionExpression", "lambdas/aws/memory.py", "the second write is accepted")
def conditional_write(test_bed: AwsTestBed) -> str:
    """A write over an old version is rejected with ConditionalCheckFailedException."""
    table = _create_table(test_bed, "conflict")
    _write(test_bed, table, 0)
    _write(test_bed, table, 1)
    return test_bed.expect_refusal(lambda: _write(test_bed, table, 1), "ConditionalCheckFailedException")


@assumes("UpdateItem", "userdata/agent/aws/registry.py", "no item, or another")
def update_makes_the_item(test_bed: AwsTestBed) -> str:
    """UpdateItem creates a missing item, and a consistent read returns it at once."""
    table, client = _create_table(test_bed, "upsert"), test_bed.clients("dynamodb")
    client.update_item(
        TableName=table,
        Key={"group": {"S": "one"}},
        UpdateExpression="SET since = if_not_exists(since, :now)",
        ExpressionAttributeValues={":now": {"N": "1"}},
    )
    item = client.get_item(TableName=table, Key={"group": {"S": "one"}}, ConsistentRead=True).get("Item")
    if item != {"group": {"S": "one"}, "since": {"N": "1"}}:
        raise Falsified(f"the item is {item}")
    return "created and read at once"


@assumes("GetParametersByPath", "lambdas/aws/settings.py", "more per page")
def pages_of_ten(test_bed: AwsTestBed) -> str:
    """GetParametersByPath returns at most ten parameters per page, recursively."""
    for number in range(11):
        _put_parameter(test_bed, f"pages/{number % 2}/{number}")
    page = test_bed.clients("ssm").get_parameters_by_path(
        Path=f"/gpu-spot-check/{test_bed.run}/pages", Recursive=True
    )
    if len(page["Parameters"]) > 10 or not page.get("NextToken"):
        raise Falsified(f"{len(page['Parameters'])} in the first page")
    return f"{len(page['Parameters'])} of 11 in the first page"


@assumes(
    "PutParameter",
    "infra/components/capacity/capacity_group.py",
    "a longer value is accepted",
)
def longest_parameter(test_bed: AwsTestBed) -> str:
    """A standard parameter has at most 4096 characters."""
    _put_parameter(test_bed, "long", "x" * 4096)
    return test_bed.expect_refusal(
        lambda: _put_parameter(test_bed, "longer", "x" * 4097), "4096", "Standard tier", "standard"
    )


@assumes(
    'EFS user guide, "Using IAM to control access to file systems"',
    "infra/iam/resource_policies.py",
    "it is rejected",
)
def policy_of_files(test_bed: AwsTestBed) -> str:
    """EFS accepts a policy that allows mounts only through mount targets."""
    client = test_bed.clients("efs")
    response = client.create_file_system(
        CreationToken=test_bed.resource_name("files"), Encrypted=True, Tags=test_bed.tags
    )
    file_system_id = response["FileSystemId"]

    def available() -> bool:
        [file_system] = client.describe_file_systems(FileSystemId=file_system_id)["FileSystems"]
        return bool(file_system["LifeCycleState"] == "available")

    test_bed.wait_until(available, "the file system is available")
    statement: dict[str, Any] = {
        "Effect": "Allow",
        "Principal": {"AWS": "*"},
        "Action": ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"],
        "Resource": response["FileSystemArn"],
        "Condition": {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}},
    }
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    test_bed.expect_success(
        lambda: client.put_file_system_policy(FileSystemId=file_system_id, Policy=document)
    )
    stored = json.loads(client.describe_file_system_policy(FileSystemId=file_system_id)["Policy"])
    if stored["Statement"][0].get("Condition") != statement["Condition"]:
        raise Falsified(f"stored policy is {stored}")
    return f"accepted, with tag {TAG}"
