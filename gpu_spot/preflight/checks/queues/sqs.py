"""The queues in SQS that are there, and where they send dead letters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.remark import Remark
from gpu_spot.preflight.stack import Stack
from infra.schema.services.queues.sqs import ExistingSqs

_NO_QUEUE: Final = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")


def declared(stack: Stack, account: Account) -> Iterator[Remark]:
    """AWS has queues everywhere."""
    yield from ()


def existing(service: str, wanted: ExistingSqs, account: Account) -> Remark:
    """Look for a queue that is there."""
    subject, client = f"queue of {service}", account.clients("sqs")
    try:
        url = client.get_queue_url(QueueName=wanted.queue)["QueueUrl"]
    except ClientError as error:
        if error.response["Error"]["Code"] not in _NO_QUEUE:
            raise
        found = f"there is no queue {wanted.queue} in this account and region: workers would end at once"
        return Remark(subject, "failure", found, "make it, with a dead-letter queue behind it")
    told = client.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"]).get("Attributes", {})
    dead = json.loads(told.get("RedrivePolicy") or "{}").get("deadLetterTargetArn", "").rpartition(":")[2]
    if dead != wanted.dead_letters:
        found = f"{wanted.queue} sends its dead letters to {dead or 'nobody'}, not to {wanted.dead_letters}"
        return Remark(subject, "failure", found, "set its redrive policy, or queue.existing.deadLetters")
    return Remark(subject, "ok", f"{wanted.queue} is there, its dead letters go to {dead}")
