"""The extension of the visibility timeout of messages: one call to SQS, and what it says of each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from spot_work.sqs.wire import MAX_BATCH_ENTRIES

_NOT_IN_FLIGHT: Final = ("MessageNotInflight", "ReceiptHandleIsInvalid", "InvalidParameterValue")
"""Error codes for a message that is visible again, deleted, or in flight for 12 hours."""
EXTENSIONS_PER_TIMEOUT: Final = 3
"""More than one: a failed extension is retried before the timeout ends."""


@dataclass(frozen=True)
class Extension:
    """What a call has done: ``hidden`` receipts until ``hidden_until`` (monotonic), not the ``lost`` ones."""

    hidden_until: float
    hidden: tuple[str, ...]
    lost: tuple[str, ...]


def batches(receipts: Sequence[str]) -> list[Sequence[str]]:
    """Return the receipts in parts for `extend`."""
    return [
        receipts[first : first + MAX_BATCH_ENTRIES] for first in range(0, len(receipts), MAX_BATCH_ENTRIES)
    ]


def extend(client: Any, queue_url: str, seconds: int, receipts: Sequence[str]) -> Extension:
    """Hide up to ten messages for another ``seconds``; raises what the call to SQS does."""
    started_at = time.monotonic()
    response = client.change_message_visibility_batch(
        QueueUrl=queue_url,
        Entries=[
            {"Id": str(n), "ReceiptHandle": receipt, "VisibilityTimeout": seconds}
            for n, receipt in enumerate(receipts)
        ],
    )
    return Extension(
        started_at + seconds,
        tuple(receipts[int(entry["Id"])] for entry in response.get("Successful", ())),
        tuple(
            receipts[int(entry["Id"])]
            for entry in response.get("Failed", ())
            if entry["Code"].rpartition(".")[2] in _NOT_IN_FLIGHT
        ),
    )
