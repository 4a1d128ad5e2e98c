"""Wake the controller between two minutes of its schedule: a delayed message on its own queue."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

LONGEST_DELAY: Final = 900.0
"""Seconds that SQS delays a message at most; the schedule covers what lies later."""


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
