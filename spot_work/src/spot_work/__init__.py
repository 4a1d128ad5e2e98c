"""Workers behind a queue: ``Client`` asks, ``serve`` answers in batches; a worker's loss loses nothing."""

from spot_work.batching import Batch
from spot_work.client import Client
from spot_work.errors import (
    BrokerRefusedError,
    ExpiredError,
    HandBack,
    LostError,
    QueueFullError,
    WorkError,
)
from spot_work.message import Request
from spot_work.queues import Queue
from spot_work.worker import Overflow, Worker, serve

__all__ = [
    "Batch",
    "BrokerRefusedError",
    "Client",
    "ExpiredError",
    "HandBack",
    "LostError",
    "Overflow",
    "Queue",
    "QueueFullError",
    "Request",
    "WorkError",
    "Worker",
    "serve",
]
