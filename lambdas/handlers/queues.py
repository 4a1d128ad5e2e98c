"""Lambda entry point of the queue watcher: each minute one look at every queue of the stack."""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Final

from aws_lambda_powertools import Logger
from botocore.config import Config

from contracts import names, watched_queue
from contracts.registry.queue_state import Backlog
from lambdas.aws.queues.watcher import QueueOutcome, QueueWatcher, build
from lambdas.handlers.clients import client
from lambdas.handlers.context import LambdaContext
from lambdas.handlers.metrics import emit

_CLIENT = Config(retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=2, read_timeout=3)
_SPARE_SECONDS: Final = 8.0
"""Of the function's time, for calls of AWS that hang at the end."""

logger = Logger(service="gpu-spot-queues")


def handler(event: object, context: LambdaContext) -> None:
    """Look at every queue; a queue that cannot be seen is told in the log and in a metric, and no error."""
    for outcome in _watcher().run(context.get_remaining_time_in_millis() / 1000 - _SPARE_SECONDS):
        _report(outcome)


@cache
def _watcher() -> QueueWatcher:
    return build(
        lambda service: client(service, _CLIENT),
        watched_queue.parse(os.environ[names.ENV_QUEUES]),
        os.environ[names.ENV_REGISTRY_TABLE],
        time.time,
    )


def _report(outcome: QueueOutcome) -> None:
    queue = outcome.queue
    if outcome.trouble:
        told = {"group": queue.group, "queue": queue.name, "reason": outcome.trouble}
        logger.error("queue not seen", extra=told)
    gauges = {} if outcome.backlog is None else gauges_of(outcome.backlog)
    emit(queue.group, {names.METRIC_QUEUE_UNSEEN: int(bool(outcome.trouble)), **gauges})


def gauges_of(backlog: Backlog) -> dict[str, float]:
    """Return a backlog as metrics."""
    return {
        names.METRIC_QUEUE_READY: backlog.ready,
        names.METRIC_QUEUE_TAKEN: backlog.taken,
        names.METRIC_QUEUE_OLDEST: backlog.oldest,
        names.METRIC_QUEUE_ARRIVING: backlog.arriving,
        names.METRIC_QUEUE_LEAVING: backlog.leaving,
        names.METRIC_QUEUE_READERS: backlog.readers,
    }
