"""What batches gain on a real RabbitMQ server, and what ``spot_work`` costs beside the bare client library.

One worker in its own process, with all requests already in the queue. The overhead is the worker's CPU time
for an empty message, compared with a dozen lines on the bare client library: reply and acknowledgement,
without and with a confirmed reply (ours confirms the reply before it acknowledges).
"""

from __future__ import annotations

import os
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pika

from packages.broker_plays.workers import PATHS
from packages.environments import ROOT
from packages.rabbitmq import RabbitServer
from spot_work import Client, Queue

ROUNDS: Final = 3
_IMAGES: Final = 1_500
_NOTHINGS: Final = 5_000
_BARE: Final = (
    "import sys; from research.parts.queue_gains import bare; "
    "bare(*sys.argv[1:3], confirmed=bool(sys.argv[3]))"
)


def many(images: Sequence[bytes]) -> list[str]:
    """Process a batch; the model is only made in a worker."""
    from research.parts import model_double

    return model_double.read(images)


def handle(image: bytes) -> str:
    """Process one image at a time."""
    return many([image])[0]


def nothing(value: Any) -> Any:
    """Do nothing."""
    return value


def bare(url: str, queue: str, *, confirmed: bool) -> None:
    """Run a worker on the bare client library that does nothing, until it is killed.

    ``confirmed``: it acknowledges after the broker has confirmed the reply, as ours does.
    """
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.basic_qos(prefetch_count=2)
    if confirmed:
        channel.confirm_delivery()

    def reply(_: Any, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        reply_properties = pika.BasicProperties(
            content_type=properties.content_type, delivery_mode=2, correlation_id=properties.correlation_id
        )
        channel.basic_publish("", properties.reply_to, body, reply_properties)
        channel.basic_ack(method.delivery_tag)

    channel.basic_consume(queue, reply)
    channel.start_consuming()


def _seconds_of(process: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    broker: RabbitServer, name: str, arguments: Sequence[str], values: Sequence[Any]
) -> tuple[float, float]:
    """Return the seconds until one worker has answered all requests, and its CPU time.

    Raises:
        RuntimeError: if the worker ends before.
    """
    environment = {**os.environ, "PYTHONPATH": PATHS, "SPOT_WORK_URL": broker.url}
    # One thread for the matrix product: the gain is that of batches, not of more cores.
    environment["OPENBLAS_NUM_THREADS"] = "1"
    with Client(broker.url, Queue(name)) as client:
        first = client.submit(values[0], timeout=600)
        command = [sys.executable, *arguments]
        worker = subprocess.Popen(  # noqa: S603 - a worker of the repository
            command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            while not first.done():  # it is running and has loaded its weights
                if worker.poll() is not None:
                    raise RuntimeError(
                        f"the worker {shlex.join(arguments)} ended with code {worker.returncode}"
                    )
                time.sleep(0.01)
            before, started_at = _seconds_of(worker), time.monotonic()
            for future in [client.submit(value, timeout=600) for value in values]:
                future.result()
            return time.monotonic() - started_at, _seconds_of(worker) - before
        finally:
            worker.kill()
            worker.wait()


def gains(broker: RabbitServer) -> dict[str, float]:
    """Return the gain of batches and the package's overhead: medians of rounds with both variants."""
    image = bytes(range(256)) * 4
    served = ["-m", "spot_work", "--batch"]
    speed, cpu, cpu_confirmed, wall, vs_pika = [], [], [], [], []
    for number in range(ROUNDS):
        alone, _ = measure(
            broker,
            f"one-{number}",
            [*served, "1", "research.parts.queue_gains:handle", "--queue", f"one-{number}"],
            [image] * _IMAGES,
        )
        batched, _ = measure(
            broker,
            f"many-{number}",
            [*served, "16", "research.parts.queue_gains:many", "--queue", f"many-{number}"],
            [image] * _IMAGES,
        )
        speed.append(alone / batched)
        ours = measure(
            broker,
            f"ours-{number}",
            [*served, "1", "research.parts.queue_gains:nothing", "--queue", f"ours-{number}"],
            [1] * _NOTHINGS,
        )
        theirs, confirmed = (
            measure(broker, name, ["-c", _BARE, broker.url, name, promise], [1] * _NOTHINGS)
            for name, promise in ((f"bare-{number}", ""), (f"confirmed-{number}", "confirmed"))
        )
        wall.append(ours[0] / theirs[0])
        vs_pika.append(confirmed[0] / ours[0])
        cpu.append(ours[1] / theirs[1])
        cpu_confirmed.append(ours[1] / confirmed[1])
    return {
        "batching_speedup": round(statistics.median(speed), 2),
        "overhead_ratio": round(statistics.median(cpu), 2),
        "overhead_ratio_confirmed": round(statistics.median(cpu_confirmed), 2),
        "overhead_ratio_wall": round(statistics.median(wall), 2),
        "vs_pika": round(statistics.median(vs_pika), 2),
    }
