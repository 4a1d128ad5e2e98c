"""Lambda functions: the layer with the SDK, and metrics in their logs."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Final

from botocore.exceptions import ClientError

from contracts import names
from gpu_spot.aws_check import roles
from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.aws_test_bed import TAG, AwsTestBed, Falsified

_RUNTIME: Final = "python3.13"
_CODE: Final = "import boto3\ndef handler(event, context):\n    return boto3.__file__\n"


def _zip(name: str, text: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(name, text)
    return data.getvalue()


@assumes(
    'Lambda guide, "Packaging your layer content"',
    "docs/adr/0062-ship-the-sdk-in-one-layer.md",
    "the runtime's boto3 is imported",
    unsupported_reason="moto runs functions in Docker only",
)
def layer_precedes_the_runtime(test_bed: AwsTestBed) -> str:
    """A package in a layer precedes that of Lambda's runtime."""
    client, name = test_bed.clients("lambda"), test_bed.resource_name("layer")
    layer = client.publish_layer_version(
        LayerName=name, Content={"ZipFile": _zip("python/boto3/__init__.py", "")}
    )["LayerVersionArn"]
    role = roles.create_role(test_bed, "function", roles.trust("lambda.amazonaws.com"))
    client.create_function(
        FunctionName=name,
        Runtime=_RUNTIME,
        Role=role,
        Handler="check.handler",
        Code={"ZipFile": _zip("check.py", _CODE)},
        Layers=[layer],
        Tags={TAG: test_bed.run},
    )

    def active() -> bool:
        state = client.get_function_configuration(FunctionName=name)["State"]
        return bool(state == "Active")

    test_bed.wait_until(active, "the function is active", 120)
    path = str(json.loads(client.invoke(FunctionName=name)["Payload"].read()))
    if not path.startswith("/opt/python/"):
        raise Falsified(f"boto3 is {path}")
    return path


@assumes(
    'CloudWatch guide, "Specification: Embedded metric format"',
    "lambdas/handlers/metrics.py",
    "no metric within five minutes",
    unsupported_reason="moto makes no metrics of logs",
)
def log_line_becomes_a_metric(test_bed: AwsTestBed) -> str:
    """CloudWatch makes a metric of a log line in embedded metric format."""
    logs, name = test_bed.clients("logs"), test_bed.resource_name("metrics")
    namespace = f"{names.METRIC_NAMESPACE}/check"
    logs.create_log_group(logGroupName=name, tags={TAG: test_bed.run})
    logs.create_log_stream(logGroupName=name, logStreamName="check")
    milliseconds = int(test_bed.clock.now() * 1000)
    line = {
        "_aws": {
            "Timestamp": milliseconds,
            "CloudWatchMetrics": [
                {"Namespace": namespace, "Dimensions": [["run"]], "Metrics": [{"Name": "Check"}]}
            ],
        },
        "run": test_bed.run,
        "Check": 1,
    }
    logs.put_log_events(
        logGroupName=name,
        logStreamName="check",
        logEvents=[{"timestamp": milliseconds, "message": json.dumps(line)}],
    )
    client = test_bed.clients("cloudwatch")
    dimension = [{"Name": "run", "Value": test_bed.run}]

    def listed() -> bool:
        return bool(client.list_metrics(Namespace=namespace, Dimensions=dimension)["Metrics"])

    test_bed.wait_until(listed, "the metric")
    return f"listed {test_bed.clock.now() - milliseconds / 1000:.0f} s later"


@assumes(
    'CreateEventSourceMapping; Lambda guide, "Configuring an Amazon SQS event source"',
    "infra/components/control/wake_ups.py",
    "it is accepted",
    unsupported_reason="moto compares no timeouts",
)
def visibility_below_the_functions_timeout(test_bed: AwsTestBed) -> str:
    """An event source is rejected if the queue's visibility timeout is below the function's timeout."""
    client, name = test_bed.clients("lambda"), test_bed.resource_name("source")
    receive = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"]
    arn = test_bed.queue_arn(test_bed.queue("source", VisibilityTimeout="10"))
    role = roles.create_role(
        test_bed, "source", roles.trust("lambda.amazonaws.com"), [{"Action": receive, "Resource": arn}]
    )
    client.create_function(
        FunctionName=name,
        Runtime=_RUNTIME,
        Role=role,
        Handler="check.handler",
        Code={"ZipFile": _zip("check.py", _CODE)},
        Timeout=60,
        Tags={TAG: test_bed.run},
    )
    try:
        mapping = client.create_event_source_mapping(EventSourceArn=arn, FunctionName=name)
    except ClientError as error:
        if "timeout" not in str(error).lower():
            raise
        return str(error.response["Error"]["Code"])
    client.delete_event_source_mapping(UUID=mapping["UUID"])
    raise Falsified("it is accepted")
