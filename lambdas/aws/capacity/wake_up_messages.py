"""Wake the controller between two minutes of its schedule, by messages on its own queue."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

LONGEST_DELAY: Final = 900.0
"""Seconds that SQS delays a message at most; the schedule covers what lies later."""


RETRY_SECONDS: Final = 20
"""Seconds until a message that goes back is received again: at most three tries within a minute."""
_MOST_ENTRIES: Final = 10
"""Of one batch request (SQS API reference, "ChangeMessageVisibilityBatch")."""


@dataclass(frozen=True, slots=True)
class AlarmClock:
    """Sends wake-ups through an injected client."""

    client: SQSClient
    queue_url: str

    def set(self, seconds: float) -> None:
        """Wake the controller in ``seconds``, rounded up; nothing where that is beyond ``LONGEST_DELAY``."""
        if seconds <= LONGEST_DELAY:
            self.client.send_message(
                QueueUrl=self.queue_url,
                MessageBody=json.dumps({"detail-type": "gpu-spot Wake-up", "source": "gpu-spot"}),
                DelaySeconds=max(0, math.ceil(seconds)),
            )

    def again(self, receipt_handles: Sequence[str]) -> None:
        """Let messages that go back be received again after ``RETRY_SECONDS``, not the queue's own timeout.

        That is six times the function's, for a function that dies; a notice is over by then.
        """
        for start in range(0, len(receipt_handles), _MOST_ENTRIES):
            batch = receipt_handles[start : start + _MOST_ENTRIES]
            self.client.change_message_visibility_batch(
                QueueUrl=self.queue_url,
                Entries=[
                    {"Id": str(number), "ReceiptHandle": handle, "VisibilityTimeout": RETRY_SECONDS}
                    for number, handle in enumerate(batch)
                ],
            )
