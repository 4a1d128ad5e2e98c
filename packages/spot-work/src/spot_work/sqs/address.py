"""Addresses of SQS queues, and the classification of SQS errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

_URL: Final = re.compile(r"sqs://(?P<region>[a-z0-9-]+)(/(?P<account>[0-9]{12}))?/?")
MAX_NAME_LENGTH: Final = 80
"""Maximum length of a queue's name. Source: SQS API reference, ``CreateQueue``."""
_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME_LENGTH}}}")
_READ_TIMEOUT_SECONDS: Final = 40
"""Must exceed the duration of a long poll, at most 20 seconds."""

NO_DEAD_LETTERS: Final = "the queue has no dead-letter queue; add a redrive policy to it"
CALL_ERRORS: Final = (ClientError, BotoCoreError)
"""Errors that a call to SQS may raise."""

# botocore's error codes; some errors have a second, query-compatible one.
_NOT_FOUND: Final = ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue")
_ACCESS_DENIED: Final = (
    *("AccessDenied", "AccessDeniedException", "AuthFailure", "InvalidClientTokenId", "KmsAccessDenied"),
    *("OptInRequired", "SignatureDoesNotMatch", "UnrecognizedClientException", "InvalidAddress"),
    # Second codes, but that of KmsThrottled. Source: ``awsQueryError`` in the Smithy model of SQS.
    *("KMS.AccessDeniedException", "KMS.DisabledException", "KMS.InvalidKeyUsageException"),
    *("KMS.InvalidStateException", "KMS.NotFoundException", "KMS.OptInRequired"),
)

_REFUSED_BATCH: Final = ("BatchRequestTooLong", "InvalidParameterValue", "InvalidMessageContents")


@dataclass(frozen=True)
class Address:
    """A region and an account; an empty account is the caller's own."""

    region: str
    account: str = ""

    @staticmethod
    def parse(url: str, queue_name: str) -> Address:
        """Parse ``sqs://region/account``; raise ``ValueError`` for another URL or an invalid queue name."""
        address = address_of(url)
        if not _NAME.fullmatch(queue_name):
            raise ValueError(
                f"a queue's name must have up to {MAX_NAME_LENGTH} letters, digits, hyphens and "
                f"underscores, not {queue_name}"
            )
        return address

    def client(self, attempts: int = 3) -> Any:
        """Return a boto3 client, which is safe to use from many threads and tries each call so often."""
        retries: Any = {"mode": "standard", "total_max_attempts": attempts}
        config = Config(
            connect_timeout=5, read_timeout=_READ_TIMEOUT_SECONDS, retries=retries, tcp_keepalive=True
        )
        return boto3.client("sqs", region_name=self.region, config=config)

    def queue_url(self, client: Any, queue_name: str) -> str:
        """Return the URL of a queue."""
        owner = {"QueueOwnerAWSAccountId": self.account} if self.account else {}
        return str(client.get_queue_url(QueueName=queue_name, **owner)["QueueUrl"])

    @staticmethod
    def dead_letter_url(client: Any, redrive_policy: str) -> str:
        """Return the URL of the dead-letter queue that a queue's redrive policy names."""
        *_, account, name = json.loads(redrive_policy)["deadLetterTargetArn"].split(":")
        return str(client.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=account)["QueueUrl"])


def address_of(url: str) -> Address:
    """Return the address in ``sqs://region/account``; raise ``ValueError`` for another URL."""
    match = _URL.fullmatch(url)
    if match is None:
        raise ValueError(
            f"the URL must be sqs://region/account, such as sqs://eu-west-1/123456789012, not {url}"
        )
    return Address(match["region"], match["account"] or "")


def call_batch(call: Callable[..., Any], url: str, batch: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the response of a batch call; one that is refused as a whole is made entry by entry."""
    try:
        return dict(call(QueueUrl=url, Entries=batch))
    except ClientError as error:
        if _code(error).rpartition(".")[2] not in _REFUSED_BATCH:
            raise
        if len(batch) == 1:
            return {"Failed": [{"Id": batch[0]["Id"], "SenderFault": True, "Code": describe(error)}]}
    parts = [call_batch(call, url, [entry]) for entry in batch]
    return {key: [entry for part in parts for entry in part.get(key, ())] for key in ("Successful", "Failed")}


def is_not_found(error: Exception) -> bool:
    """Return whether the queue does not exist."""
    return _code(error) in _NOT_FOUND


def is_permanent(error: Exception) -> bool:
    """Return whether a retry cannot succeed."""
    return _code(error) in (*_NOT_FOUND, *_ACCESS_DENIED)


def describe(error: Exception) -> str:
    """Return the message of an error in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _code(error: Exception) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""
