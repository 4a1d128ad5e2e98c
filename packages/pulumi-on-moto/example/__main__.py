"""A shop: an order comes in as an event, a function keeps it, a second one writes its receipt."""

import pulumi
import pulumi_aws as aws

orders = aws.dynamodb.Table(
    "orders", attributes=[{"name": "id", "type": "S"}], hash_key="id", billing_mode="PAY_PER_REQUEST"
)
receipts = aws.s3.Bucket("receipts")
queue = aws.sqs.Queue("orders", visibility_timeout_seconds=60)
role = aws.iam.Role(
    "functions",
    assume_role_policy=aws.iam.get_policy_document(
        statements=[
            {
                "actions": ["sts:AssumeRole"],
                "principals": [{"type": "Service", "identifiers": ["lambda.amazonaws.com"]}],
            }
        ]
    ).json,
)
aws.iam.RolePolicy(
    "functions",
    role=role.id,
    policy=pulumi.Output.json_dumps(
        {
            "Version": "2012-10-17",
            "Statement": [
                {"Effect": "Allow", "Action": "dynamodb:PutItem", "Resource": orders.arn},
                {"Effect": "Allow", "Action": "s3:PutObject", "Resource": receipts.arn.apply("{}/*".format)},
                {"Effect": "Allow", "Action": "sqs:*", "Resource": queue.arn},
            ],
        }
    ),
)
functions = {
    name: aws.lambda_.Function(
        name,
        role=role.arn,
        runtime="python3.13",
        handler=f"{name}.handler",
        code=pulumi.FileArchive("functions"),
        environment={"variables": {"ORDERS": orders.name, "QUEUE": queue.url, "RECEIPTS": receipts.bucket}},
    )
    for name in ("keep", "receipt")
}
aws.cloudwatch.LogGroup(
    "keep",
    name=functions["keep"].name.apply("/aws/lambda/{}".format),
    retention_in_days=pulumi.Config().require_int("retentionDays"),
)

# EventBridge calls the first function itself …
placed = aws.cloudwatch.EventRule(
    "placed", event_pattern=pulumi.Output.json_dumps({"detail-type": ["Order placed"]})
)
aws.cloudwatch.EventTarget("placed", rule=placed.name, arn=functions["keep"].arn)
aws.lambda_.Permission(
    "placed",
    action="lambda:InvokeFunction",
    function=functions["keep"].name,
    principal="events.amazonaws.com",
    source_arn=placed.arn,
)
# … which leaves a message for the second.
aws.lambda_.EventSourceMapping(
    "orders", event_source_arn=queue.arn, function_name=functions["receipt"].arn, batch_size=10
)

pulumi.export("orders", orders.name)
pulumi.export("receipts", receipts.bucket)
