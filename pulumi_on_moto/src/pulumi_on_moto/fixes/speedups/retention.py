"""Whether a message is older than its queue keeps it, without working out every attribute of the queue."""

from __future__ import annotations

from typing import Any, Final

from moto.core.utils import unix_time
from moto.sqs.models import Message, SQSBackend

from pulumi_on_moto.fixes.fix import Patch


def _is_kept(backend: SQSBackend, queue_name: str, message: Message) -> bool:
    queue: Any = backend.get_queue(queue_name)
    sent: Any = message.sent_timestamp
    return bool(queue.message_retention_period + sent / 1000 > unix_time())


RETENTION: Final[Patch] = (SQSBackend, "is_message_valid_based_on_retention_period", _is_kept)
