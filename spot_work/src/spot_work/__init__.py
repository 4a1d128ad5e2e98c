"""Workers behind a queue: ``Client`` asks, ``serve`` answers in batches; a worker's loss loses nothing."""

from spot_work.batching import Batch
from spot_work.client import Client
from spot_work.errors import (
    ExpiredError,
    HandBack,
    LostError,
    QueueFullError,
    RefusedError,
    WorkError,
)
from spot_work.message import Task
from spot_work.queues import Queue
from spot_work.worker import Overflow, Worker, serve

__all__ = [
    "Batch",
    "Client",
    "ExpiredError",
    "HandBack",
    "LostError",
    "Overflow",
    "Queue",
    "QueueFullError",
    "RefusedError",
    "Task",
    "WorkError",
    "Worker",
    "serve",
]
