"""Lambda entry point of the queue watcher, which reads each queue of the stack every minute."""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Final

from aws_lambda_powertools import Logger
from botocore.config import Config

from contracts import names, watched_queue
from contracts.registry.queue_state import QueueState
from lambdas.aws.queues.watcher import QueueOutcome, QueueWatcher, build
from lambdas.core.scaling.queue_source import workers_for_queue
from lambdas.handlers.metrics import emit
from lambdas.handlers.runtime import LambdaContext, client

_CLIENT = Config(retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=2, read_timeout=3)
_SPARE_SECONDS: Final = 8.0
"""Part of the function's timeout that is reserved for AWS calls that hang at the end."""

logger = Logger(service="gpu-spot-queues")


def handler(event: object, context: LambdaContext) -> None:
    """Read each queue; unreachable queues are logged and counted in a metric, the function succeeds."""
    for outcome in _watcher().run(context.get_remaining_time_in_millis() / 1000 - _SPARE_SECONDS):
        _report(outcome)


@cache
def _watcher() -> QueueWatcher:
    return build(
        lambda service: client(service, _CLIENT),
        watched_queue.parse(os.environ[names.ENV_QUEUES]),
        os.environ[names.ENV_REGISTRY_TABLE],
        time.time,
        os.environ[names.ENV_STACK],
        os.environ.get(names.ENV_INSTANCE_ARNS, ""),
    )


def _report(outcome: QueueOutcome) -> None:
    queue = outcome.queue
    if queue.kind == watched_queue.HTTP:
        _report_proxies(outcome)
        return
    if outcome.error:
        fields = {"group": queue.group, "queue": queue.name, "reason": outcome.error}
        logger.error("queue unreachable", extra=fields)
    gauges = {} if outcome.state is None else gauges_of(outcome.state, queue.requests_per_worker)
    emit(queue.group, {names.METRIC_QUEUE_UNREACHABLE: int(bool(outcome.error)), **gauges})


def _report_proxies(outcome: QueueOutcome) -> None:
    group, state = outcome.queue.group, outcome.http
    if outcome.error:
        logger.error("requests at proxies unknown", extra={"group": group, "reason": outcome.error})
    unknown = int(bool(outcome.error)) if state is None else state.unreadable
    emit(group, {names.METRIC_PROXIES_UNREADABLE: unknown})


def gauges_of(state: QueueState, queued_per_worker: int = 0) -> dict[str, float]:
    """Return the known metrics of a queue; with ``queued_per_worker`` also the workers for its state."""
    workers: dict[str, float] = {}
    if queued_per_worker:
        workers = {names.METRIC_QUEUE_WORKERS: workers_for_queue(state, queued_per_worker)}
    gauges = {
        **workers,
        names.METRIC_QUEUE_READY: state.ready,
        names.METRIC_QUEUE_IN_FLIGHT: state.in_flight,
        names.METRIC_QUEUE_OLDEST_MESSAGE_AGE: state.oldest_seconds,
        names.METRIC_QUEUE_PUBLISH_RATE: state.publish_rate,
        names.METRIC_QUEUE_ACK_RATE: state.ack_rate,
        names.METRIC_QUEUE_CONSUMERS: state.consumers,
    }
    return {name: value for name, value in gauges.items() if value is not None}
