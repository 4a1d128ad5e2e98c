"""Keep an order, and ask for its receipt."""

import json
import os

import boto3


def handler(event, context):
    """Handle the event "Order placed"."""
    order = event["detail"]
    item = {"id": {"S": order["id"]}, "customer": {"S": order["customer"]}}
    boto3.client("dynamodb").put_item(TableName=os.environ["ORDERS"], Item=item)
    boto3.client("sqs").send_message(QueueUrl=os.environ["QUEUE"], MessageBody=json.dumps(order))
    print("kept", order["id"])  # noqa: T201 - it goes to the function's log
