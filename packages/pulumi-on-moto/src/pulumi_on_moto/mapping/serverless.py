"""Lambda functions, log groups, parameters, DynamoDB tables."""

from __future__ import annotations

from typing import Any, Final

from pulumi_on_moto.mapping.archives import zip_bytes
from pulumi_on_moto.mapping.base import CreatedResource, ResourceRequest, Spec, generated_name, output_paths


def _archive(draft: ResourceRequest) -> dict[str, bytes]:
    if (archive := draft.take("code")) is None:
        raise draft.fail("input 'code' is missing: the local cloud takes code from archives only")
    return {"ZipFile": zip_bytes(archive)}


def _function(draft: ResourceRequest) -> None:
    name, code = draft.need("name"), _archive(draft)
    draft.code[name] = code["ZipFile"]
    draft.put(FunctionName=name, Code=code)


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
    if days := resource.inputs.get("retentionInDays"):
        resource.clients("logs").put_retention_policy(logGroupName=resource.id, retentionInDays=int(days))


def _metric_filter(draft: ResourceRequest) -> None:
    transformation = dict(draft.need("metricTransformation"))
    renamed = {f"metric{key.capitalize()}": transformation.pop(key) for key in ("name", "namespace", "value")}
    if (default := transformation.pop("defaultValue", None)) is not None:
        renamed["defaultValue"] = float(default)
    draft.put(metricTransformations=[{**renamed, **transformation}])


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
    if encryption := draft.take("serverSideEncryption"):
        key = {"KMSMasterKeyId": encryption["kmsKeyArn"]} if encryption.get("kmsKeyArn") else {}
        draft.put(SSESpecification={"Enabled": encryption["enabled"], "SSEType": "KMS", **key})
    if draft.take("streamEnabled"):
        draft.put(StreamSpecification={"StreamEnabled": True, "StreamViewType": draft.need("streamViewType")})
    if indexes := draft.take("globalSecondaryIndexes"):
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
    if recovery := resource.inputs.get("pointInTimeRecovery"):
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
        shape=_function,
        after=_concurrency,
        takes={"reservedConcurrentExecutions"},
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
        shape=lambda draft: draft.put(Content=_archive(draft)),
        outputs=output_paths(arn="LayerVersionArn", layerArn="LayerArn", version="Version"),
        no_effect={"skipDestroy": "nothing is ever deleted here"},
    ),
    "aws:lambda/eventSourceMapping:EventSourceMapping": Spec(
        "lambda.create_event_source_mapping",
        "UUID",
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
        after=_retention,
        takes={"retentionInDays"},
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
        rename={"insecureValue": "Value"},
        autoname="name",
        outputs=lambda resource: {
            "arn": resource.arn("ssm", f"parameter/{resource.id.lstrip('/')}"),
            "version": resource.find("Version"),
        },
    ),
    "aws:ssm/document:Document": Spec(
        "ssm.create_document",
        "=Name",
        autoname="name",
        outputs=lambda resource: {"arn": resource.arn("ssm", f"document/{resource.id}"), "name": resource.id},
    ),
    "aws:dynamodb/table:Table": Spec(
        "dynamodb.create_table",
        "=TableName",
        rename={"name": "TableName"},
        autoname="name",
        shape=_table,
        after=_table_extras,
        takes={"ttl", "pointInTimeRecovery"},
        outputs=output_paths(arn="TableDescription.TableArn"),
    ),
}
