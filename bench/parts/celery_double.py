"""Empty tasks on Celery, for comparison; run by an interpreter with Celery: ``celery_double.py URL COUNT``.

As safe as `spot_work`: a quorum queue, acknowledged after the run, confirmed and persistent results, one
process. Prints the seconds from the first result to the last.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from celery import Celery  # type: ignore[import-not-found]

app = Celery("celery_double", backend="rpc://")
app.conf.update(
    broker_url=sys.argv[1] if __name__ == "__main__" else "",
    task_acks_late=True,
    task_default_queue="celery-double",
    task_default_queue_type="quorum",
    worker_detect_quorum_queues=True,
    result_persistent=True,
    worker_prefetch_multiplier=2,
    broker_transport_options={"confirm_publish": True},
    broker_connection_retry_on_startup=True,
)


@app.task(name="nothing")  # type: ignore[untyped-decorator]
def nothing(value: int) -> int:
    """Return the value."""
    return value


def main(url: str, count: int) -> None:
    """Start a worker, send the tasks and wait for all results."""
    command = [sys.executable, "-m", "celery", "-A", "celery_double", "-b", url, "worker"]
    options = ["--concurrency", "1", "--loglevel", "ERROR", "--without-gossip", "--without-mingle"]
    worker = subprocess.Popen(  # noqa: S603 - ourselves
        [*command, *options], cwd=Path(__file__).parent, stdout=subprocess.DEVNULL
    )
    try:
        nothing.delay(0).get(timeout=120)
        started_at = time.monotonic()
        for result in [nothing.delay(number) for number in range(count)]:
            result.get(timeout=600)
        print(json.dumps({"seconds": time.monotonic() - started_at}))
    finally:
        worker.terminate()
        worker.wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
