"""What batches gain on a real RabbitMQ server, and what ``spot_work`` costs beside other ways to its promise.

One worker in its own process answers requests that are all in the queue, from its first reply to its last.
Empty messages are compared with workers that acknowledge a request after its reply is confirmed:

- ``pipelined``, lines on pika with one thread and one connection: a function that takes long sends no
  heartbeats, and an alarm of the broker's, which stops who publishes, stops the acknowledgements too.
- ``apart``, the same with the function in a thread, and the replies on a connection, of their own.
- Celery, at the best of its queues and pools.

Each at the best of `PREFETCHES` requests on their way, and with the first of them. Ours has as many as its
function's time allows; theirs stay, so that behind a long request as many wait. CPU time is that of a worker
with its children: ours has a process that sends its heartbeats.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pika
import pika.exceptions

from packages.broker_plays.workers import PATHS
from packages.environments import ROOT, environment
from packages.rabbitmq import RabbitServer
from spot_work import Client, Queue

ROUNDS: Final = 3
_IMAGES: Final = 1_500
_NOTHINGS: Final = 5_000
PREFETCHES: Final = (16, 64, 256)
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


class _Replies:
    """Publishes replies on a channel; calls ``on_confirmed`` with the newest request of those confirmed.

    Replies that are confirmed out of their order count with the ones before them.
    """

    def __init__(self, channel: Any, on_confirmed: Callable[[int], object]) -> None:
        self._channel = channel
        self._on_confirmed = on_confirmed
        self._unconfirmed: deque[int] = deque()  # delivery tags, in the order of the replies
        self._first = 1  # the number of the oldest unconfirmed reply
        channel.confirm_delivery(self._on_confirm)

    def publish(self, tag: int, request: pika.BasicProperties, body: bytes) -> None:
        properties = pika.BasicProperties(
            content_type=request.content_type, delivery_mode=2, correlation_id=request.correlation_id
        )
        self._unconfirmed.append(tag)
        self._channel.basic_publish("", request.reply_to, body, properties)

    def _on_confirm(self, frame: Any) -> None:
        tag = 0
        while self._unconfirmed and self._first <= frame.method.delivery_tag:
            self._first, tag = self._first + 1, self._unconfirmed.popleft()
        if tag:
            self._on_confirmed(tag)


def _consume(channel: Any, queue_name: str, prefetch: str, on_request: Callable[..., object]) -> None:
    channel.basic_qos(prefetch_count=int(prefetch))
    channel.basic_consume(queue_name, lambda _, method, *message: on_request(method.delivery_tag, *message))


def _connect(url: str, on_channel: Callable[[Any], object]) -> pika.SelectConnection:
    def on_open(connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=on_channel)

    return pika.SelectConnection(pika.URLParameters(url), on_open_callback=on_open)


def pipelined(url: str, prefetch: str, queue_name: str) -> None:
    """Run a worker on pika that acknowledges what the broker has confirmed, until it is killed."""

    def on_channel(channel: Any) -> None:
        replies = _Replies(channel, partial(channel.basic_ack, multiple=True))
        _consume(channel, queue_name, prefetch, replies.publish)

    _connect(url, on_channel).ioloop.start()


def apart(url: str, prefetch: str, queue_name: str) -> None:
    """Run a worker on pika as `pipelined`, with a connection and a thread for each direction."""
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    unsent: deque[Any] = deque()
    confirmed: deque[int] = deque()
    channels: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def on_confirmed(tag: int) -> None:
        confirmed.append(tag)
        if len(confirmed) == 1:
            inward.connection.ioloop.add_callback_threadsafe(acknowledge)

    def acknowledge() -> None:
        while confirmed:
            inward.basic_ack(confirmed.popleft(), multiple=True)

    def publish() -> None:
        while unsent:
            replies.publish(*unsent.popleft())

    def opened() -> Any:
        threading.Thread(target=_connect(url, channels.put).ioloop.start, daemon=True).start()
        return channels.get()

    inward, outward = opened(), opened()
    replies = _Replies(outward, on_confirmed)
    inward.connection.ioloop.add_callback_threadsafe(
        lambda: _consume(inward, queue_name, prefetch, lambda *request: requests.put(request))
    )
    while True:
        unsent.append(requests.get())
        if len(unsent) == 1:
            outward.connection.ioloop.add_callback_threadsafe(publish)


def _seconds_of(process: int) -> float:
    """Return the CPU time of a process and its children."""
    folder = Path("/proc") / str(process)
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    children = [int(child) for path in folder.glob("task/*/children") for child in path.read_text().split()]
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK") + sum(_seconds_of(child) for child in children)


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


def _stored(connection: Any, name: str) -> int:
    try:
        with connection.channel() as channel:
            return int(channel.queue_declare(name, passive=True).method.message_count)
    except pika.exceptions.ChannelClosedByBroker:  # its client has not declared it yet
        return 0


def _timed(
    connection: Any,
    stored: tuple[str, int],
    command: Sequence[str | Path],
    variables: Mapping[str, str],
    has_answered: Callable[[int], bool],
) -> tuple[float, float]:
    """Start a worker once its queue has all requests; return the seconds and the CPU time of the replies.

    Raises:
        RuntimeError: if the worker ends before.
    """
    name, count = stored
    while _stored(connection, name) < count:
        time.sleep(0.01)
    with _worker(command, {**os.environ, **variables}) as worker:
        measured = []
        for replies in (1, count):
            while not has_answered(replies):
                if worker.poll() is not None:
                    raise RuntimeError(f"the worker {worker.args!r} ended with code {worker.returncode}")
                time.sleep(0.001)
            measured.append((time.monotonic(), _seconds_of(worker.pid)))
    (started_at, cpu_before), (ended_at, cpu_after) = measured
    return ended_at - started_at, cpu_after - cpu_before


def measure(
    broker: RabbitServer, name: str, arguments: Sequence[str], values: Sequence[Any]
) -> tuple[float, float]:
    """Return the seconds in which one worker answers all requests, and its CPU time; raises as `_timed`."""
    # One thread for the matrix product: the gain is that of batches, not of more cores.
    variables = {"PYTHONPATH": PATHS, "SPOT_WORK_URL": broker.url, "OPENBLAS_NUM_THREADS": "1"}
    with Client(broker.url, Queue(name)) as client, _connection(broker) as connection:
        futures = deque(client.submit(value, timeout=600) for value in values)

        def has_answered(count: int) -> bool:
            while futures and futures[0].done():
                futures.popleft().result()
            return len(values) - len(futures) >= count

        stored = name, len(values)
        return _timed(connection, stored, [sys.executable, *arguments], variables, has_answered)


@contextmanager
def _connection(broker: RabbitServer) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    try:
        yield connection
    finally:
        connection.close()


def celery(broker: RabbitServer, setting: tuple[str, str, int], number: int, tasks: int) -> float:
    """Return the seconds in which a worker of Celery answers so many tasks; raises as `_timed`."""
    kind, pool, prefetch = setting
    name, answered = f"celery-{kind}-{pool}-{prefetch}-{number}", 0

    def on_reply(*_: Any) -> None:
        nonlocal answered
        answered += 1

    def has_answered(count: int) -> bool:
        connection.process_data_events(0.01)
        return answered >= count

    with _connection(broker) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
        reply_queue = channel.queue_declare("", exclusive=True).method.queue
        for _ in range(tasks):
            id_ = str(uuid.uuid4())
            headers = {"lang": "py", "task": "nothing", "id": id_}
            form = {"content_type": "application/json", "content_encoding": "utf-8", "delivery_mode": 2}
            properties = pika.BasicProperties(
                **form, headers=headers, correlation_id=id_, reply_to=reply_queue
            )
            channel.basic_publish("", name, b"[[1], {}, {}]", properties)
        channel.basic_consume(reply_queue, on_reply, auto_ack=True)
        python, arguments = environment("queue") / "python", (broker.url, name, kind, pool, str(prefetch))
        command: list[str | Path] = [python, _CELERY, *arguments]
        return _timed(connection, (name, tasks), command, {"C_FORCE_ROOT": "1"}, has_answered)[0]


def gains(broker: RabbitServer) -> dict[str, float]:
    """Return the gain of batches and the package's overhead: medians of rounds with all variants."""
    image = bytes(range(256)) * 4
    served = ["-m", "spot_work", "--batch"]
    ratios: dict[str, list[float]] = {}
    for number in range(ROUNDS):

        def round_(name: str, command: Sequence[str], values: Sequence[Any], end: str = f"-{number}") -> Any:
            return measure(broker, name + end, [*command, name + end], values)

        images = [image] * _IMAGES
        alone, _ = round_("one", [*served, "1", "research.parts.queue_gains:handle", "--queue"], images)
        batched, _ = round_("many", [*served, "16", "research.parts.queue_gains:many", "--queue"], images)
        ratios.setdefault("batching_speedup", []).append(alone / batched)
        nothings = [1] * _NOTHINGS
        ours = round_("ours", [*served, "1", "research.parts.queue_gains:nothing", "--queue"], nothings)
        for rival in _RIVALS:
            theirs = [
                round_(f"{rival}-{prefetch}", ["-c", _RIVAL, rival, broker.url, str(prefetch)], nothings)
                for prefetch in PREFETCHES
            ]
            for name, (seconds, cpu) in ((f"{rival}_first", theirs[0]), (rival, min(theirs))):
                ratios.setdefault(f"vs_{name}", []).append(seconds / ours[0])
                ratios.setdefault(f"cpu_vs_{name}", []).append(ours[1] / cpu)
        settings = itertools.product(("quorum", "classic"), ("solo", "threads", "prefork"), PREFETCHES)
        best = min(celery(broker, setting, number, _NOTHINGS // 5) for setting in settings)
        ratios.setdefault("vs_celery", []).append(5 * best / ours[0])
    return {name: round(statistics.median(values), 2) for name, values in ratios.items()}
