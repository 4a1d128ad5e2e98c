"""What workers are told of the queue that they read, in the words of ``spot_work``."""

from __future__ import annotations

import re
from typing import Final

from contracts.agent.config import Queue
from userdata.agent.machine.errors import AgentError

_URL: Final = re.compile(r"amqps?://[^\s\x00-\x1f\x7f]+")


def environment(queue: Queue, secret: str = "") -> dict[str, str]:
    """Return the variables; ``secret`` is the text of the queue's secret, the broker's URL.

    One of SQS has no secret: its workers have the instance's role.

    Raises:
        AgentError: it is no such URL; the error does not have the text.
    """
    if queue.url is not None:
        return {"SPOT_WORK_URL": queue.url, "SPOT_WORK_QUEUE": queue.name}
    url = secret.strip()
    if not _URL.fullmatch(url):
        raise AgentError(
            f"secret {queue.secret}: no URL of a broker in it, allowed: amqps://user:password@host"
        )
    return {
        "SPOT_WORK_URL": url,
        "SPOT_WORK_QUEUE": queue.name,
        "SPOT_WORK_TRIES": str(queue.tries),
        "SPOT_WORK_MOST": str(queue.most),
    }
