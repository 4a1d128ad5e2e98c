"""What batches gain on a real RabbitMQ server, and what ``spot_work`` costs beside the bare client library.

One worker in its own process, with all requests already in the queue. Empty messages are compared with two
workers of a few lines on pika. The first waits for nothing: it acknowledges before the broker has the reply.
The second makes our promise, a confirmed reply before the acknowledgement, and does not wait for it either:
it takes `PIPELINED` requests at a time, as many as ours.
"""

from __future__ import annotations

import os
import shlex
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
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
PIPELINED: Final = 16
_RIVALS: Final = ("bare", "pipelined")
_RIVAL: Final = (
    "import sys; from research.parts import queue_gains as q; getattr(q, sys.argv[1])(*sys.argv[2:])"
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


def _publish_reply(channel: Any, request: pika.BasicProperties, body: bytes) -> None:
    properties = pika.BasicProperties(
        content_type=request.content_type, delivery_mode=2, correlation_id=request.correlation_id
    )
    channel.basic_publish("", request.reply_to, body, properties)


def bare(url: str, queue: str) -> None:
    """Run a worker on pika that acknowledges before the broker has the reply, until it is killed."""
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.basic_qos(prefetch_count=PIPELINED)

    def on_request(_: Any, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        _publish_reply(channel, properties, body)
        channel.basic_ack(method.delivery_tag)

    channel.basic_consume(queue, on_request)
    channel.start_consuming()


def pipelined(url: str, queue: str) -> None:
    """Run a worker on pika that acknowledges what the broker has confirmed, until it is killed."""
    unconfirmed: deque[int] = deque()  # delivery tags, in the order of the replies

    def on_open(connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=on_channel)

    def on_channel(channel: Any) -> None:
        first = 1  # the number of the oldest unconfirmed reply

        def on_confirmed(frame: Any) -> None:
            nonlocal first
            # Replies that are confirmed out of their order are acknowledged with the ones before them.
            while unconfirmed and first <= frame.method.delivery_tag:
                first += 1
                channel.basic_ack(unconfirmed.popleft())

        def on_request(_: Any, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
            unconfirmed.append(method.delivery_tag)
            _publish_reply(channel, properties, body)

        channel.confirm_delivery(on_confirmed)
        channel.basic_qos(prefetch_count=PIPELINED)
        channel.basic_consume(queue, on_request)

    pika.SelectConnection(pika.URLParameters(url), on_open_callback=on_open).ioloop.start()


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
    speed: list[float] = []
    seconds: dict[str, list[tuple[float, float]]] = {"ours": [], **{name: [] for name in _RIVALS}}
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
        served_by = {
            "ours": [*served, "1", "research.parts.queue_gains:nothing", "--queue"],
            **{name: ["-c", _RIVAL, name, broker.url] for name in _RIVALS},
        }
        for name, command in served_by.items():
            queue = f"{name}-{number}"
            seconds[name].append(measure(broker, queue, [*command, queue], [1] * _NOTHINGS))
    ours, bare_, promised = (seconds[name] for name in ("ours", *_RIVALS))
    return {
        "batching_speedup": _median(speed),
        "overhead_ratio": _median(a[1] / b[1] for a, b in zip(ours, bare_, strict=True)),
        "overhead_ratio_confirmed": _median(a[1] / b[1] for a, b in zip(ours, promised, strict=True)),
        "vs_pipelined": _median(b[0] / a[0] for a, b in zip(ours, promised, strict=True)),
    }


def _median(ratios: Iterable[float]) -> float:
    return round(statistics.median(ratios), 2)
