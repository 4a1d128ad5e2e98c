"""What batches gain on a real RabbitMQ server, and what ``spot_work`` costs beside other ways to its promise.

One worker in its own process, with all requests already in the queue. Empty messages are compared with
workers that acknowledge a request after its reply is confirmed, and have as many on their way at once:

- ``pipelined``, lines on pika with one thread and one connection: a function that takes long sends no
  heartbeats, and an alarm of the broker's, which stops who publishes, stops the acknowledgements too.
- ``apart``, the same with the function in a thread, and the replies on a connection, of their own.
- Celery, at the best of its queues and pools. Its tasks are sent by lines that wait for nothing; ours are
  from `Client`, which waits for their confirms.

CPU time is that of a worker with its children: ours has a process that sends its heartbeats.
"""

from __future__ import annotations

import itertools
import os
import queue
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pika

from packages.broker_plays.workers import PATHS
from packages.environments import ROOT, environment
from packages.rabbitmq import RabbitServer
from spot_work import Client, Queue

ROUNDS: Final = 3
_IMAGES: Final = 1_500
_NOTHINGS: Final = 5_000
PIPELINED: Final = 16
_CELERY: Final = ROOT / "packages" / "broker_plays" / "celery_worker.py"
_RIVALS: Final = ("pipelined", "apart")
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


def pipelined(url: str, queue_name: str) -> None:
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
        channel.basic_consume(queue_name, on_request)

    pika.SelectConnection(pika.URLParameters(url), on_open_callback=on_open).ioloop.start()


def apart(url: str, queue_name: str) -> None:
    """Run a worker on pika as `pipelined`, with a connection and a thread for each direction."""
    requests: queue.SimpleQueue[tuple[int, Any, bytes]] = queue.SimpleQueue()
    replies: deque[tuple[int, Any, bytes]] = deque()
    unconfirmed: deque[int] = deque()
    confirmed: deque[int] = deque()
    channels: dict[str, Any] = {}

    def on_request(_: Any, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        requests.put((method.delivery_tag, properties, body))

    def consume(channel: Any) -> None:
        channels["requests"] = channel
        channel.basic_qos(prefetch_count=PIPELINED)
        channel.basic_consume(queue_name, on_request)

    def acknowledge() -> None:
        while confirmed:
            channels["requests"].basic_ack(confirmed.popleft())

    def confirm(channel: Any) -> None:
        first = 1

        def on_confirmed(frame: Any) -> None:
            nonlocal first
            while unconfirmed and first <= frame.method.delivery_tag:
                first += 1
                confirmed.append(unconfirmed.popleft())
                if len(confirmed) == 1:
                    inward.ioloop.add_callback_threadsafe(acknowledge)

        channels["replies"] = channel
        channel.confirm_delivery(on_confirmed)

    def publish() -> None:
        while replies:
            tag, properties, body = replies.popleft()
            unconfirmed.append(tag)
            _publish_reply(channels["replies"], properties, body)

    parameters = pika.URLParameters(url)
    inward, outward = (
        pika.SelectConnection(parameters, on_open_callback=lambda c, f=use: c.channel(on_open_callback=f))
        for use in (consume, confirm)
    )
    for name, connection in (("replies", outward), ("requests", inward)):
        threading.Thread(target=connection.ioloop.start, daemon=True).start()
        while name not in channels:
            time.sleep(0.001)
    while True:
        replies.append(requests.get())
        if len(replies) == 1:
            outward.ioloop.add_callback_threadsafe(publish)


def _seconds_of(process: int) -> float:
    """Return the CPU time of a process and its children."""
    folder = Path("/proc") / str(process)
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    children = [int(child) for path in folder.glob("task/*/children") for child in path.read_text().split()]
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK") + sum(_seconds_of(child) for child in children)


def _wait_for(worker: subprocess.Popen[bytes], is_true: Callable[[], bool]) -> None:
    while not is_true():
        if worker.poll() is not None:
            raise RuntimeError(f"the worker {worker.args!r} ended with code {worker.returncode}")
        time.sleep(0.001)


@contextmanager
def _worker(command: Sequence[str | Path], variables: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    worker = subprocess.Popen(  # noqa: S603 - a worker of the repository
        command, cwd=ROOT, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()


def measure(
    broker: RabbitServer, name: str, arguments: Sequence[str], values: Sequence[Any]
) -> tuple[float, float]:
    """Return the seconds until one worker has answered all requests, and its CPU time.

    Raises:
        RuntimeError: if the worker ends before.
    """
    variables = {**os.environ, "PYTHONPATH": PATHS, "SPOT_WORK_URL": broker.url}
    # One thread for the matrix product: the gain is that of batches, not of more cores.
    variables["OPENBLAS_NUM_THREADS"] = "1"
    with (
        Client(broker.url, Queue(name)) as client,
        _worker([sys.executable, *arguments], variables) as worker,
    ):
        _wait_for(worker, client.submit(values[0], timeout=600).done)  # it has loaded its weights
        before, started_at = _seconds_of(worker.pid), time.monotonic()
        for future in [client.submit(value, timeout=600) for value in values]:
            future.result()
        return time.monotonic() - started_at, _seconds_of(worker.pid) - before


def celery(broker: RabbitServer, kind: str, pool: str, number: int, tasks: int) -> float:
    """Return the seconds until a worker of Celery has answered so many tasks; raises as `measure`."""
    name, answered = f"celery-{kind}-{pool}-{number}", 0
    channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
    reply_queue = channel.queue_declare("", exclusive=True).method.queue

    def on_reply(*_: Any) -> None:
        nonlocal answered
        answered += 1

    def submit() -> None:
        id_ = str(uuid.uuid4())
        headers = {"lang": "py", "task": "nothing", "id": id_}
        form = {"content_type": "application/json", "content_encoding": "utf-8", "delivery_mode": 2}
        properties = pika.BasicProperties(**form, headers=headers, correlation_id=id_, reply_to=reply_queue)
        channel.basic_publish("", name, b"[[1], {}, {}]", properties)

    def has_answered(count: int) -> bool:
        channel.connection.process_data_events(0.01)
        return answered >= count

    channel.basic_consume(reply_queue, on_reply, auto_ack=True)
    command: list[str | Path] = [environment("queue") / "python", _CELERY, broker.url, name, kind, pool]
    submit()
    with _worker(command, {**os.environ, "C_FORCE_ROOT": "1"}) as worker:
        _wait_for(worker, lambda: has_answered(1))
        started_at = time.monotonic()
        for _ in range(tasks):
            submit()
        _wait_for(worker, lambda: has_answered(1 + tasks))
        return time.monotonic() - started_at


def gains(broker: RabbitServer) -> dict[str, float]:
    """Return the gain of batches and the package's overhead: medians of rounds with both variants."""
    image = bytes(range(256)) * 4
    served = ["-m", "spot_work", "--batch"]
    speed: list[float] = []
    seconds: dict[str, list[tuple[float, float]]] = {"ours": [], **{name: [] for name in _RIVALS}}
    celeries: list[float] = []
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
            queue_name = f"{name}-{number}"
            seconds[name].append(measure(broker, queue_name, [*command, queue_name], [1] * _NOTHINGS))
        settings = itertools.product(("quorum", "classic"), ("solo", "threads", "prefork"))
        celeries.append(min(celery(broker, *setting, number, tasks=_NOTHINGS // 2) for setting in settings))
    ours = seconds.pop("ours")
    result = {"batching_speedup": _median(speed)}
    for name, theirs in seconds.items():
        result[f"vs_{name}"] = _median(b[0] / a[0] for a, b in zip(ours, theirs, strict=True))
        result[f"cpu_vs_{name}"] = _median(a[1] / b[1] for a, b in zip(ours, theirs, strict=True))
    return result | {"vs_celery": _median(2 * b / a[0] for a, b in zip(ours, celeries, strict=True))}


def _median(ratios: Iterable[float]) -> float:
    return round(statistics.median(ratios), 2)
