"""Environment variables by which ``spot_work`` finds its queue."""

from __future__ import annotations

import re
from typing import Final

from contracts.agent.config import Queue
from userdata.agent.machine.errors import AgentError

_URL: Final = re.compile(r"amqps?://[^\s\x00-\x1f\x7f]+")


def environment(queue: Queue, secret: str = "") -> dict[str, str]:
    """Return the variables; ``secret`` is the text of the queue's secret, the broker's URL.

    An SQS queue has no secret: its workers use the instance role.

    Raises:
        AgentError: the secret is not an AMQP URL; the message does not contain it.
    """
    if queue.url is not None:
        return {"SPOT_WORK_URL": queue.url, "SPOT_WORK_QUEUE": queue.name}
    url = secret.strip()
    if not _URL.fullmatch(url):
        raise AgentError(f"secret {queue.secret} is not a broker URL; store amqps://user:password@host")
    return {
        "SPOT_WORK_URL": url,
        "SPOT_WORK_QUEUE": queue.name,
        "SPOT_WORK_TRIES": str(queue.max_deliveries),
        "SPOT_WORK_MOST": str(queue.max_length),
    }
