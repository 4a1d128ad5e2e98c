"""A worker of Celery that makes the promise of ``spot_work``: run by an environment that has Celery.

    celery_worker.py URL QUEUE KIND POOL PREFETCH

A task is acknowledged after its result is sent, and comes back if its worker is lost; both are persistent.
``KIND`` is the queue's, ``quorum`` as ours or ``classic``.
"""

from __future__ import annotations

import sys
from typing import Any

from celery import Celery


def nothing(value: Any) -> Any:
    """Do nothing."""
    return value


def work(url: str, queue: str, kind: str, pool: str, prefetch: str) -> None:
    """Run tasks until it is killed, without what a worker need not do."""
    app = Celery("celery_worker", broker=url, backend="rpc://")
    app.conf.update(
        task_default_queue=queue,
        task_default_queue_type=kind,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=int(prefetch),
        broker_transport_options={"confirm_publish": True},
        result_persistent=True,
    )
    app.task(name="nothing")(nothing)
    options = ["worker", "--pool", pool, "--concurrency", "1", "--loglevel", "ERROR"]
    app.worker_main([*options, "--without-gossip", "--without-mingle", "--without-heartbeat"])


if __name__ == "__main__":
    work(*sys.argv[1:])
