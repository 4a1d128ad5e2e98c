"""Age of an SQS message against its queue's retention, without all attributes of the queue."""

from __future__ import annotations

from typing import Any, Final

from moto.core.utils import unix_time
from moto.sqs.models import SQSBackend

from pulumi_on_moto.fixes.fix import Patch


def _is_valid(backend: Any, queue_name: str, message: Any) -> bool:
    retention = backend.get_queue(queue_name).message_retention_period
    return bool(retention + message.sent_timestamp / 1000 > unix_time())


RETENTION: Final[Patch] = (SQSBackend, "is_message_valid_based_on_retention_period", _is_valid)
