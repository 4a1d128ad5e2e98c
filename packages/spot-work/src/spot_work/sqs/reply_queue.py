"""The reply queue of a client: created, marked as alive, and deleted if its client is lost."""

from __future__ import annotations

import hashlib
import logging
import time
import uuid
from typing import Any, Final

from spot_work.queue.backoff import RANDOM
from spot_work.sqs.address import CALL_ERRORS, describe

log: Final = logging.getLogger("spot_work")

MARK_ALIVE_INTERVAL_SECONDS: Final = 900.0
"""Interval at which a client tags its queue. SQS allows an account five ``TagQueue`` calls a second."""
_ABANDONED_AFTER_SECONDS: Final = 3600.0
_RETENTION_SECONDS: Final = 1800
"""Retention period of replies: longer than the timeout of most clients."""
_ALIVE_TAG: Final = "spot-work:alive"
_MAX_NAME_LENGTH: Final = 55
"""Of a queue, beside the 25 characters of a reply queue's end."""
_MAX_QUEUES_PER_SWEEP: Final = 5
"""Queues that a client checks in one sweep; all clients together check every queue."""


def prefix(queue_name: str) -> str:
    """Return the common prefix of the names of a queue's reply queues, which have 80 characters at most."""
    if len(queue_name) > _MAX_NAME_LENGTH:
        queue_name = f"{queue_name[:46]}-{hashlib.sha256(queue_name.encode()).hexdigest()[:8]}"
    return f"{queue_name}-answers-"


def create(client: Any, queue_name: str) -> str:
    """Create a reply queue with a unique name; return its URL."""
    response = client.create_queue(
        QueueName=f"{prefix(queue_name)}{uuid.uuid4().hex[:16]}",
        Attributes={"MessageRetentionPeriod": str(_RETENTION_SECONDS), "SqsManagedSseEnabled": "true"},
        tags={_ALIVE_TAG: _now()},
    )
    return str(response["QueueUrl"])


def mark_alive(client: Any, url: str) -> None:
    """Tag the queue with the time, as a sign that its client is alive."""
    client.tag_queue(QueueUrl=url, Tags={_ALIVE_TAG: _now()})


def delete_abandoned(client: Any, queue_name: str) -> int:
    """Delete some queues that were not marked for an hour; return how many. Errors are logged."""
    deleted = 0
    try:
        response = client.list_queues(QueueNamePrefix=prefix(queue_name), MaxResults=1000)
        urls = response.get("QueueUrls", [])
        for url in RANDOM.sample(urls, min(len(urls), _MAX_QUEUES_PER_SWEEP)):
            tags = client.list_queue_tags(QueueUrl=url).get("Tags", {})
            # A queue without the tag was not created by this package.
            if _ALIVE_TAG in tags and int(tags[_ALIVE_TAG]) + _ABANDONED_AFTER_SECONDS < time.time():
                client.delete_queue(QueueUrl=url)
                deleted += 1
    except (*CALL_ERRORS, ValueError) as error:
        log.warning("%s: abandoned reply queues not deleted: %s", queue_name, describe(error))
    return deleted


def _now() -> str:
    return str(int(time.time()))
