"""Lambda functions, log groups, parameters, DynamoDB tables."""

from __future__ import annotations

from typing import Any, Final

from pulumi_on_moto.mapping.archives import zip_bytes
from pulumi_on_moto.mapping.base import CreatedResource, ResourceRequest, Spec, generated_name, output_paths


def _function(draft: ResourceRequest) -> None:
    name = draft.need("name")
    archive = draft.take("code")
    if archive is None:
        raise draft.fail("input 'code' is missing: only functions from an archive run in the local cloud")
    code = zip_bytes(archive)
    draft.code[name] = code
    draft.put(FunctionName=name, Code={"ZipFile": code})


def _layer(draft: ResourceRequest) -> None:
    archive = draft.take("code")
    if archive is None:
        raise draft.fail("input 'code' is missing: only layers from an archive exist in the local cloud")
    draft.put(Content={"ZipFile": zip_bytes(archive)})


def _concurrency(resource: CreatedResource) -> None:
    reserved = resource.inputs.get("reservedConcurrentExecutions")
    if reserved is not None and int(reserved) >= 0:  # -1 means "not reserved"
        resource.clients("lambda").put_function_concurrency(
            FunctionName=resource.id, ReservedConcurrentExecutions=int(reserved)
        )


def _function_outputs(resource: CreatedResource) -> dict[str, Any]:
    arn = resource.find("FunctionArn")
    region = resource.clients.region
    return {
        "arn": arn,
        "invokeArn": f"arn:aws:apigateway:{region}:lambda:path/2015-03-31/functions/{arn}/invocations",
        "qualifiedArn": f"{arn}:$LATEST",
        "version": "$LATEST",
        "codeSha256": resource.find("CodeSha256"),
        "lastModified": resource.find("LastModified"),
    }


def _permission(draft: ResourceRequest) -> None:
    draft.put(
        FunctionName=draft.need("function"), StatementId=draft.take("statementId") or generated_name(draft)
    )


def _retention(resource: CreatedResource) -> None:
    days = resource.inputs.get("retentionInDays")
    if days:
        resource.clients("logs").put_retention_policy(logGroupName=resource.id, retentionInDays=int(days))


def _metric_filter(draft: ResourceRequest) -> None:
    transformation = dict(draft.need("metricTransformation"))
    renamed = {f"metric{key.capitalize()}": transformation.pop(key) for key in ("name", "namespace", "value")}
    default = transformation.pop("defaultValue", None)
    if default is not None:
        renamed["defaultValue"] = float(default)
    draft.put(metricTransformations=[{**renamed, **transformation}])


def _parameter(draft: ResourceRequest) -> None:
    insecure = draft.take("insecureValue")
    if insecure is not None:
        draft.put(Value=insecure)


def _table(draft: ResourceRequest) -> None:
    attributes = draft.need("attributes")
    draft.put(
        AttributeDefinitions=[{"AttributeName": a["name"], "AttributeType": a["type"]} for a in attributes],
        KeySchema=_key_schema(draft.take("hashKey"), draft.take("rangeKey")),
    )
    read, write = draft.take("readCapacity"), draft.take("writeCapacity")
    if draft.inputs.get("billingMode", "PROVISIONED") == "PROVISIONED":
        draft.put(
            ProvisionedThroughput={"ReadCapacityUnits": int(read or 1), "WriteCapacityUnits": int(write or 1)}
        )
        draft.inputs["billingMode"] = "PROVISIONED"
    encryption = draft.take("serverSideEncryption")
    if encryption:
        key = encryption.get("kmsKeyArn")
        draft.put(
            SSESpecification={"Enabled": encryption["enabled"], "SSEType": "KMS"}
            | ({"KMSMasterKeyId": key} if key else {})
        )
    if draft.take("streamEnabled"):
        draft.put(StreamSpecification={"StreamEnabled": True, "StreamViewType": draft.need("streamViewType")})
    indexes = draft.take("globalSecondaryIndexes") or []
    if indexes:
        draft.put(GlobalSecondaryIndexes=[_index(index) for index in indexes])


def _index(index: dict[str, Any]) -> dict[str, Any]:
    projection: dict[str, Any] = {"ProjectionType": index["projectionType"]}
    if index.get("nonKeyAttributes"):
        projection["NonKeyAttributes"] = index["nonKeyAttributes"]
    return {
        "IndexName": index["name"],
        "KeySchema": _key_schema(index["hashKey"], index.get("rangeKey")),
        "Projection": projection,
    }


def _key_schema(hash_key: str, range_key: str | None) -> list[dict[str, str]]:
    keys = [{"AttributeName": hash_key, "KeyType": "HASH"}]
    if range_key:
        keys.append({"AttributeName": range_key, "KeyType": "RANGE"})
    return keys


def _table_extras(resource: CreatedResource) -> None:
    dynamodb = resource.clients("dynamodb")
    ttl = resource.inputs.get("ttl")
    if ttl and ttl.get("enabled", True):
        dynamodb.update_time_to_live(
            TableName=resource.id,
            TimeToLiveSpecification={"Enabled": True, "AttributeName": ttl["attributeName"]},
        )
    recovery = resource.inputs.get("pointInTimeRecovery")
    if recovery:
        dynamodb.update_continuous_backups(
            TableName=resource.id,
            PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": recovery["enabled"]},
        )


_LOCAL_PACKAGES: Final = "the handler sees the packages of this Python environment"

SPECS: dict[str, Spec] = {
    "aws:lambda/function:Function": Spec(
        "lambda.create_function",
        "FunctionName",
        rename={"kmsKeyArn": "KMSKeyArn"},
        autoname="name",
        tags="map",
        shape=_function,
        after=_concurrency,
        takes=frozenset({"reservedConcurrentExecutions"}),
        outputs=_function_outputs,
        no_effect={
            "layers": _LOCAL_PACKAGES,
            "sourceCodeHash": "the archive itself is deployed",
            "skipDestroy": "nothing is ever deleted here",
        },
    ),
    "aws:lambda/layerVersion:LayerVersion": Spec(
        "lambda.publish_layer_version",
        "LayerVersionArn",
        autoname="layerName",
        shape=_layer,
        outputs=output_paths(arn="LayerVersionArn", layerArn="LayerArn", version="Version"),
        no_effect={"skipDestroy": "nothing is ever deleted here"},
    ),
    "aws:lambda/eventSourceMapping:EventSourceMapping": Spec(
        "lambda.create_event_source_mapping",
        "UUID",
        tags="map",
        outputs=output_paths(
            uuid="UUID", functionArn="FunctionArn", state="State", arn="EventSourceMappingArn"
        ),
    ),
    "aws:lambda/functionEventInvokeConfig:FunctionEventInvokeConfig": Spec(
        "lambda.put_function_event_invoke_config", "=FunctionName"
    ),
    "aws:lambda/permission:Permission": Spec("lambda.add_permission", "=StatementId", shape=_permission),
    "aws:cloudwatch/logGroup:LogGroup": Spec(
        "logs.create_log_group",
        "=logGroupName",
        rename={"name": "logGroupName"},
        autoname="name",
        tags="map",
        after=_retention,
        takes=frozenset({"retentionInDays"}),
        outputs=lambda resource: {"arn": resource.arn("logs", f"log-group:{resource.id}")},
        no_effect={"skipDestroy": "nothing is ever deleted here"},
    ),
    "aws:cloudwatch/logMetricFilter:LogMetricFilter": Spec(
        "logs.put_metric_filter",
        "=filterName",
        rename={"name": "filterName", "pattern": "filterPattern"},
        autoname="name",
        shape=_metric_filter,
    ),
    "aws:ssm/parameter:Parameter": Spec(
        "ssm.put_parameter",
        "=Name",
        autoname="name",
        tags="list",
        shape=_parameter,
        outputs=lambda resource: {
            "arn": resource.arn("ssm", f"parameter/{resource.id.lstrip('/')}"),
            "version": resource.find("Version"),
        },
    ),
    "aws:ssm/document:Document": Spec(
        "ssm.create_document",
        "=Name",
        autoname="name",
        tags="list",
        outputs=lambda resource: {"arn": resource.arn("ssm", f"document/{resource.id}"), "name": resource.id},
    ),
    "aws:dynamodb/table:Table": Spec(
        "dynamodb.create_table",
        "=TableName",
        rename={"name": "TableName"},
        autoname="name",
        tags="list",
        shape=_table,
        after=_table_extras,
        takes=frozenset({"ttl", "pointInTimeRecovery"}),
        outputs=output_paths(arn="TableDescription.TableArn"),
    ),
}
