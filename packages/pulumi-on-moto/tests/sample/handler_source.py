"""The sample's function: fails the messages it is told to fail."""

import json
import os

import boto3
import helper_of_sample


def handler(event, context):
    failed = []
    for record in event["Records"]:
        body = json.loads(record["body"])
        print(json.dumps({"seen": body["detail-type"], "group": os.environ["GROUP"]}))  # noqa: T201
        if body["detail"].get("break"):
            raise RuntimeError("told to break")
        if "sooner" in body["detail"]:
            boto3.client("sqs").change_message_visibility(
                QueueUrl=body["detail"]["queue"],
                ReceiptHandle=record["receiptHandle"],
                VisibilityTimeout=body["detail"]["sooner"],
            )
        if body["detail"].get("fail"):
            failed.append({"itemIdentifier": record["messageId"]})
        else:
            helper_of_sample.SEEN.append(body["detail-type"])
    return {"batchItemFailures": failed}
