"""Workers behind a RabbitMQ or SQS queue: `serve` replies to requests in batches, `Client` sends them."""

from spot_work.batching import Batch
from spot_work.client import Client
from spot_work.errors import (
    BrokerRefusedError,
    ExpiredError,
    LostError,
    OverloadedError,
    QueueFullError,
    Requeue,
    WorkError,
)
from spot_work.queue.settings import Queue
from spot_work.request.message import Request
from spot_work.request.trace import trace_carriers
from spot_work.worker import Overflow, Worker, serve

__all__ = [
    "Batch",
    "BrokerRefusedError",
    "Client",
    "ExpiredError",
    "LostError",
    "Overflow",
    "OverloadedError",
    "Queue",
    "QueueFullError",
    "Request",
    "Requeue",
    "WorkError",
    "Worker",
    "serve",
    "trace_carriers",
]
