"""Existing SQS queues and their dead-letter queues."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.stack import Stack
from infra.schema.services.queues.sqs import ExistingSqs

_NO_QUEUE: Final = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")


def declared(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """SQS is available in every region."""
    yield from ()


def existing(service: str, settings: ExistingSqs, account: Account) -> CheckResult:
    """Check an existing queue."""
    subject, client = f"queue of {service}", account.clients("sqs")
    try:
        url = client.get_queue_url(QueueName=settings.queue)["QueueUrl"]
    except ClientError as error:
        if error.response["Error"]["Code"] not in _NO_QUEUE:
            raise
        finding = f"queue {settings.queue} does not exist in this account and region: workers would exit"
        return CheckResult(subject, "failure", finding, "create it with a dead-letter queue")
    attributes = client.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"]).get(
        "Attributes", {}
    )
    dead = (
        json.loads(attributes.get("RedrivePolicy") or "{}").get("deadLetterTargetArn", "").rpartition(":")[2]
    )
    if dead != settings.dead_letters:
        finding = f"{settings.queue} has dead-letter queue {dead or 'none'}, not {settings.dead_letters}"
        return CheckResult(
            subject, "failure", finding, "set its redrive policy, or queue.existing.deadLetters"
        )
    return CheckResult(subject, "ok", f"{settings.queue} exists, its dead-letter queue is {dead}")
