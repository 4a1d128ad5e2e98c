"""A client's own queue of answers: made, kept alive, removed; and what clients that were lost left behind."""

from __future__ import annotations

import logging
import random
import time
import uuid
from typing import Any, Final

from spot_work.sqs.address import TROUBLE, words

log: Final = logging.getLogger("spot_work")

KEEP_EVERY: Final = 900.0
"""Seconds between two signs of life of a client: an account may tag five times a second."""
_LOST_AFTER: Final = 3600.0
_LASTS: Final = 1800
"""Seconds that an answer lies there: longer than most would wait, and shorter than anybody pays for."""
_ALIVE: Final = "spot-work:alive"
_LOOKED_AT: Final = 5
"""Queues that a client looks at each time: many clients find all of them, and few calls are made."""


def prefix(queue: str) -> str:
    """Return what the names of all queues of answers of a queue start with."""
    return f"{queue}-answers-"


def make(client: Any, queue: str) -> str:
    """Make one, under a name of its own; return its URL."""
    answer = client.create_queue(
        QueueName=f"{prefix(queue)}{uuid.uuid4().hex[:16]}",
        Attributes={"MessageRetentionPeriod": str(_LASTS), "SqsManagedSseEnabled": "true"},
        tags={_ALIVE: _now()},
    )
    return str(answer["QueueUrl"])


def keep(client: Any, url: str) -> None:
    """Say that its client lives."""
    client.tag_queue(QueueUrl=url, Tags={_ALIVE: _now()})


def sweep(client: Any, queue: str) -> int:
    """Remove some of those whose client has not lived for an hour; return how many. Trouble is said."""
    removed = 0
    try:
        answer = client.list_queues(QueueNamePrefix=prefix(queue), MaxResults=1000)
        urls = answer.get("QueueUrls", [])
        for url in random.sample(urls, min(len(urls), _LOOKED_AT)):
            tags = client.list_queue_tags(QueueUrl=url).get("Tags", {})
            # Without the tag it is somebody else's.
            if _ALIVE in tags and int(tags[_ALIVE]) + _LOST_AFTER < time.time():
                client.delete_queue(QueueUrl=url)
                removed += 1
    except (*TROUBLE, ValueError) as error:
        log.warning("%s: queues of lost clients were not looked for: %s", queue, words(error))
    return removed


def _now() -> str:
    return str(int(time.time()))
