"""Messages on the controller's own queue that start it between two runs of its schedule."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

MAX_DELAY_SECONDS: Final = 900.0
"""Maximum message delay of SQS; the schedule covers later times."""
RETRY_SECONDS: Final = 20
"""Visibility timeout of returned messages: at most three attempts within a minute."""
_MAX_BATCH_ENTRIES: Final = 10
"""Source: SQS API reference, ``ChangeMessageVisibilityBatch``."""


@dataclass(frozen=True, slots=True)
class WakeUpScheduler:
    """Schedules runs of the controller."""

    client: SQSClient
    queue_url: str

    def schedule(self, seconds: float) -> None:
        """Start the controller in ``seconds``, rounded up; do nothing above ``MAX_DELAY_SECONDS``."""
        if seconds <= MAX_DELAY_SECONDS:
            self.client.send_message(
                QueueUrl=self.queue_url,
                MessageBody=json.dumps({"detail-type": "gpu-spot Wake-up", "source": "gpu-spot"}),
                DelaySeconds=max(0, math.ceil(seconds)),
            )

    def retry_soon(self, receipt_handles: Sequence[str]) -> None:
        """Set the visibility timeout of returned messages to ``RETRY_SECONDS``.

        The queue's own timeout, six times the function's, is for a function that crashes; it exceeds a
        notice.
        """
        for start in range(0, len(receipt_handles), _MAX_BATCH_ENTRIES):
            batch = receipt_handles[start : start + _MAX_BATCH_ENTRIES]
            self.client.change_message_visibility_batch(
                QueueUrl=self.queue_url,
                Entries=[
                    {"Id": str(number), "ReceiptHandle": handle, "VisibilityTimeout": RETRY_SECONDS}
                    for number, handle in enumerate(batch)
                ],
            )
