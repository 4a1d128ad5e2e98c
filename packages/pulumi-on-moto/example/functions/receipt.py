"""Write the receipts of orders into a bucket."""

import json
import os

import boto3


def handler(event, context):
    """Handle a batch of messages, one order each."""
    bucket = boto3.client("s3")
    for record in event["Records"]:
        order = json.loads(record["body"])
        body = f"{order['customer']} ordered {order['id']}\n".encode()
        bucket.put_object(Bucket=os.environ["RECEIPTS"], Key=f"{order['id']}.txt", Body=body)
