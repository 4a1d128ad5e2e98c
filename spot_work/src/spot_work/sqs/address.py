"""Where a queue of SQS is, and what its errors mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

_URL: Final = re.compile(r"sqs://(?P<region>[a-z0-9-]+)(/(?P<account>[0-9]{12}))?/?")
LONGEST_NAME: Final = 55
"""Of a queue of requests; SQS takes 80, and clients' queues of answers are named after it."""
_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST_NAME}}}")
_READ_SECONDS: Final = 40
"""A long poll takes 20."""

TROUBLE: Final = (ClientError, BotoCoreError)
"""What a call may raise."""

# By botocore's own names of the service's errors: some have a query-compatible one besides.
_GONE: Final = ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue")
_REFUSED: Final = (
    *("AccessDenied", "AccessDeniedException", "AuthFailure", "InvalidClientTokenId", "KmsAccessDenied"),
    *("OptInRequired", "SignatureDoesNotMatch", "UnrecognizedClientException", "InvalidAddress"),
)


@dataclass(frozen=True)
class Address:
    """A region and an account; without one it is the caller's own."""

    region: str
    account: str = ""

    @classmethod
    def parse(cls, url: str, queue: str) -> Address:
        """Return the address in ``sqs://region/account``; raise ``ValueError`` for another, or for a name."""
        found = _URL.fullmatch(url)
        if found is None:
            raise ValueError(f"{url}, allowed: sqs://region/account, such as sqs://eu-west-1/123456789012")
        if not _NAME.fullmatch(queue):
            raise ValueError(f"queue {queue}, allowed: {LONGEST_NAME} letters, digits, hyphens, underscores")
        return cls(found["region"], found["account"] or "")

    def client(self) -> Any:
        """Return a client of boto3, safe to use from many threads; it finds credentials where boto3 does."""
        retries: Any = {"mode": "standard", "total_max_attempts": 3}
        config = Config(connect_timeout=5, read_timeout=_READ_SECONDS, retries=retries, tcp_keepalive=True)
        return boto3.client("sqs", region_name=self.region, config=config)

    def queue_url(self, client: Any, queue: str) -> str:
        """Return the URL of a queue."""
        owner = {"QueueOwnerAWSAccountId": self.account} if self.account else {}
        return str(client.get_queue_url(QueueName=queue, **owner)["QueueUrl"])


def is_gone(error: Exception) -> bool:
    """Tell whether there is no such queue."""
    return _code(error) in _GONE


def is_refusal(error: Exception) -> bool:
    """Tell whether to try again is no use."""
    return _code(error) in (*_GONE, *_REFUSED)


def words(error: Exception) -> str:
    """Return an error in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _code(error: Exception) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""
