"""Conditions on items of DynamoDB tables, tried with the credentials of roles and of an instance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from contracts import names
from contracts.registry import item as registry_item
from gpu_spot.aws_check import probe, roles
from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.aws_test_bed import AwsTestBed, Falsified
from gpu_spot.aws_check.probe import ProbeStep
from gpu_spot.aws_check.roles import PolicyStatement
from infra.iam.statement import keys_unlike
from userdata.agent.aws import permissions

_KEYS: Final = 'DynamoDB guide, "Using IAM policy conditions for fine-grained access control"'
_VARIABLES: Final = (
    'IAM user guide, "AWS global condition context keys" and "IAM policy elements: Variables and tags"'
)
_ADR: Final = "docs/adr/0063-bind-a-registry-row-to-its-writer.md"
_PERMISSIONS: Final = "userdata/agent/aws/permissions.py"
_GROUP: Final = "check"
_NEIGHBOR: Final = "i-0123456789abcdef0"


def _table(test_bed: AwsTestBed, suffix: str) -> str:
    """Create a table with the registry's key and return its name once it is active."""
    client, name = test_bed.clients("dynamodb"), test_bed.resource_name(suffix)
    keys = (names.REGISTRY_KEY, names.REGISTRY_SORT_KEY)
    client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
        KeySchema=[
            {"AttributeName": key, "KeyType": kind} for key, kind in zip(keys, ("HASH", "RANGE"), strict=True)
        ],
        BillingMode="PAY_PER_REQUEST",
        Tags=test_bed.tags,
    )
    test_bed.wait_until(
        lambda: client.describe_table(TableName=name)["Table"]["TableStatus"] == "ACTIVE",
        "the table is active",
    )
    return name


def _product_statement(test_bed: AwsTestBed, sid: str, table: str, **words: str) -> PolicyStatement:
    """Return a statement of the node agent's policy for a table, with its placeholders filled in."""
    [permission] = [permission for permission in permissions.STATEMENTS if permission.sid == sid]
    conditions = {
        operator: {
            key: [text.format_map(words) for text in ([value] if isinstance(value, str) else value)]
            for key, value in keys.items()
        }
        for operator, keys in permission.conditions.items()
    }
    return {
        "Action": list(permission.actions),
        "Resource": test_bed.arn("dynamodb", f"table/{table}"),
        "Condition": conditions,
    }


def _key(partition: str, worker: str = "worker") -> dict[str, Any]:
    return {names.REGISTRY_KEY: {"S": partition}, names.REGISTRY_SORT_KEY: {"S": worker}}


def _update(table: str, key: Mapping[str, Any], attribute: str = "heartbeat") -> dict[str, Any]:
    """Return arguments of UpdateItem as the agent sends them, with the new item in the response."""
    return {
        "TableName": table,
        "Key": key,
        "UpdateExpression": "SET #a = :v",
        "ExpressionAttributeNames": {"#a": attribute},
        "ExpressionAttributeValues": {":v": {"N": "1"}},
        "ReturnValues": "ALL_NEW",
    }


def _probe_instance(test_bed: AwsTestBed, suffix: str) -> dict[str, str]:
    """Launch an instance with the agent's statement, which writes its own item and another instance's."""
    table = _table(test_bed, suffix)
    statement = _product_statement(
        test_bed, "ReportWorkers", table, group=_GROUP, writer=permissions.INSTANCE_ARN
    )
    own_key = _key(registry_item.partition(_GROUP, probe.OWN_ARN), f"{probe.OWN_ID}/0")
    neighbor_arn = test_bed.arn("ec2", f"instance/{_NEIGHBOR}")
    foreign_key = _key(registry_item.partition(_GROUP, neighbor_arn), f"{_NEIGHBOR}/0")
    steps = [
        ProbeStep("own", "dynamodb", "update_item", _update(table, own_key)),
        ProbeStep("other", "dynamodb", "update_item", _update(table, foreign_key)),
        ProbeStep("deleted", "dynamodb", "delete_item", {"TableName": table, "Key": own_key}),
    ]
    return probe.run(test_bed, suffix, [statement], steps)


@assumes(f"{_VARIABLES}; {_KEYS}", _ADR, "the instance may not write its own item: no heartbeat", instances=1)
def own_row(test_bed: AwsTestBed) -> str:
    """dynamodb:LeadingKeys with ${ec2:SourceInstanceARN} allows an instance its own partition key."""
    results = _probe_instance(test_bed, "own-row")
    if (results["own"], results["deleted"]) != (probe.ALLOWED, probe.ALLOWED):
        raise Falsified(f"UpdateItem: {results['own']}, DeleteItem: {results['deleted']}")
    return "the instance wrote and deleted its own item"


@assumes(f"{_VARIABLES}; {_KEYS}", _ADR, "an instance may write another instance's item", instances=1)
def no_other_row(test_bed: AwsTestBed) -> str:
    """dynamodb:LeadingKeys with ${ec2:SourceInstanceARN} denies an instance every other partition key."""
    results = _probe_instance(test_bed, "other-row")
    if results["other"] != probe.DENIED:
        raise Falsified(f"UpdateItem with another instance's key: {results['other']}")
    return "UpdateItem with another instance's key was denied"


@assumes(_KEYS, "userdata/agent/aws/registry.py", "UpdateItem with ReturnValues is denied")
def returned_item_with_leading_keys(test_bed: AwsTestBed) -> str:
    """A policy with a condition on LeadingKeys only allows UpdateItem with ReturnValues ALL_NEW."""
    table = _table(test_bed, "returned")
    statement = _product_statement(test_bed, "ReportWorkers", table, group=_GROUP, writer="host")
    client = roles.acting(test_bed, "returned", [statement])("dynamodb")
    key = _key(registry_item.partition(_GROUP, "host"))
    response = roles.expect_allowed(lambda: client.update_item(**_update(table, key)), "UpdateItem")
    if "heartbeat" not in response.get("Attributes", {}):
        raise Falsified(f"returned are {response.get('Attributes')}")
    return "the whole new item was returned"


def _batch(table: str, *partitions: str) -> dict[str, Any]:
    return {"RequestItems": {table: {"Keys": [_key(partition) for partition in partitions]}}}


@assumes(_KEYS, _PERMISSIONS, "BatchGetItem is denied")
def batch_of_own_keys(test_bed: AwsTestBed) -> str:
    """BatchGetItem is allowed if every key of the request matches dynamodb:LeadingKeys."""
    table = _table(test_bed, "batch")
    statement = _product_statement(test_bed, "KeepExperiments", table, job="job")
    client = roles.acting(test_bed, "batch", [statement])("dynamodb")
    roles.expect_allowed(lambda: client.batch_get_item(**_batch(table, "job-1", "job-2")), "BatchGetItem")
    return "two own keys were read"


@assumes(_KEYS, _PERMISSIONS, "it is allowed")
def batch_with_another_key(test_bed: AwsTestBed) -> str:
    """BatchGetItem is denied if one key of the request does not match dynamodb:LeadingKeys."""
    table = _table(test_bed, "mixed")
    statement = _product_statement(test_bed, "KeepExperiments", table, job="job")
    client = roles.acting(test_bed, "mixed", [statement])("dynamodb")
    roles.expect_denied(lambda: client.batch_get_item(**_batch(table, "job-1", "other-1")), "BatchGetItem")
    return "denied with one key of another job"


@assumes(_KEYS, "infra/iam/statement.py", "Scan is allowed")
def no_scan_with_leading_keys(test_bed: AwsTestBed) -> str:
    """A request without a key, such as Scan, is denied if Null requires dynamodb:LeadingKeys."""
    table = _table(test_bed, "scanned")
    statement = dict(_product_statement(test_bed, "KeepExperiments", table, job="job"))
    statement["Action"] = ["dynamodb:Scan"]
    client = roles.acting(test_bed, "scanned", [statement])("dynamodb")
    roles.expect_denied(lambda: client.scan(TableName=table), "Scan")
    return "Scan was denied"


@assumes(
    _KEYS,
    "infra/iam/controller_statements.py",
    "PutItem is allowed with a reserved key, or denied with another",
)
def reserved_keys(test_bed: AwsTestBed) -> str:
    """ForAllValues:StringNotLike on dynamodb:LeadingKeys allows keys without an at sign and no others."""
    table = _table(test_bed, "reserved")
    statement = {
        "Action": "dynamodb:PutItem",
        "Resource": test_bed.arn("dynamodb", f"table/{table}"),
        "Condition": keys_unlike("*@*"),
    }
    client = roles.acting(test_bed, "reserved", [statement])("dynamodb")
    own_key, foreign_key = (_key(partition) for partition in ("group", names.health_memory("group")))
    roles.expect_allowed(lambda: client.put_item(TableName=table, Item=own_key), "PutItem of a group's item")
    roles.expect_denied(
        lambda: client.put_item(TableName=table, Item=foreign_key), "PutItem of the health checker's item"
    )
    return "allowed without an at sign, denied with it"


@assumes(_KEYS, _PERMISSIONS, "a key with another suffix is allowed, or an attempt's key is denied")
def two_characters(test_bed: AwsTestBed) -> str:
    """StringLike with two question marks matches exactly two characters of a partition key."""
    table = _table(test_bed, "attempts")
    statement = _product_statement(test_bed, "RecordJob", table, job="job")
    client = roles.acting(test_bed, "attempts", [statement])("dynamodb")

    def put(partition: str) -> Any:
        return client.put_item(TableName=table, Item=_key(partition))

    roles.expect_allowed(lambda: put("job#07"), "PutItem with two characters")
    roles.expect_denied(lambda: put("job#007"), "PutItem with three characters")
    return "allowed with two characters, denied with three"


@assumes(_KEYS, "infra/iam/health_statements.py", "another attribute may be written, or `restart` may not")
def attributes_bound_permissions(test_bed: AwsTestBed) -> str:
    """dynamodb:Attributes limits UpdateItem to the listed attributes, the key's included."""
    table = _table(test_bed, "attributes")
    listed = [names.REGISTRY_KEY, names.REGISTRY_SORT_KEY, "restart"]
    statement = {
        "Action": "dynamodb:UpdateItem",
        "Resource": test_bed.arn("dynamodb", f"table/{table}"),
        "Condition": {
            "ForAllValues:StringEquals": {"dynamodb:Attributes": listed},
            "Null": {"dynamodb:Attributes": "false"},
        },
    }
    client = roles.acting(test_bed, "attributes", [statement])("dynamodb")

    def write(attribute: str) -> Any:
        arguments = _update(table, _key("group"), attribute)
        del arguments["ReturnValues"]
        return client.update_item(**arguments)

    roles.expect_allowed(lambda: write("restart"), "UpdateItem of `restart`")
    roles.expect_denied(lambda: write("heartbeat"), "UpdateItem of `heartbeat`")
    return "allowed for `restart`, denied for `heartbeat`"


@assumes("BatchGetItem", "lambdas/aws/registry.py", "101 keys are accepted, or 100 are not")
def batch_of_a_hundred(test_bed: AwsTestBed) -> str:
    """BatchGetItem accepts 100 keys, rejects 101, and leaves out items that do not exist."""
    table, client = _table(test_bed, "hundred"), test_bed.clients("dynamodb")
    keys = [f"key-{number}" for number in range(101)]
    client.put_item(TableName=table, Item=_key(keys[0]))
    response = test_bed.expect_success(lambda: client.batch_get_item(**_batch(table, *keys[:100])))
    if response["Responses"].get(table) != [_key(keys[0])] or response.get("UnprocessedKeys"):
        raise Falsified(f"read are {response['Responses']}, unprocessed {response.get('UnprocessedKeys')}")
    return test_bed.expect_refusal(
        lambda: client.batch_get_item(**_batch(table, *keys)), "Too many items", "less than or equal to 100"
    )
