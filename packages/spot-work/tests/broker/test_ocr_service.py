"""examples/ocr-service: two chained services as processes on a real RabbitMQ server, killed and drained."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import run_recorder
from environments import environment
from rabbitmq import RabbitServer, free_port

from spot_work import Client, WorkError
from support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[4]
EXAMPLE = ROOT / "examples" / "ocr-service"
REQUESTS = 250
SERVICES = {"pages": ("preprocess:read", "8", True), "ocr": ("recognise:read", "16", False)}


class Chain:
    """Worker processes of both services; each run is recorded."""

    def __init__(self, broker: RabbitServer, folder: Path) -> None:
        self.broker, self.folder = broker, folder
        self.workers: list[tuple[str, subprocess.Popen[bytes], Path]] = []
        self._numbers = itertools.count()

    def start(self, service: str) -> None:
        """Start a worker and wait until it is ready."""
        function, batch, takes_requests = SERVICES[service]
        ready = self.folder / f"ready-{next(self._numbers)}"
        variables = {
            "PYTHONPATH": os.pathsep.join(
                [str(ROOT / "packages"), str(ROOT / "packages" / "spot-work" / "src")]
            ),
            "SPOT_WORK_URL": self.broker.url,
            "GPU_SPOT_READY": str(ready),
            "OCR_MODEL": "numpy",
            "OCR_LINES_QUEUE": "ocr",
            run_recorder.FUNCTION: function,
            run_recorder.TAKES_REQUESTS: str(int(takes_requests)),
            run_recorder.RECORD: str(self.record(service)),
        }
        command = ["-m", "spot_work", "run_recorder:run", "--requests"]
        with (self.folder / "workers").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *command, "--queue", service, "--batch", batch],
                cwd=EXAMPLE,
                env={**os.environ, **variables},
                stdout=log,
                stderr=log,
            )
        self.workers.append((service, process, ready))

    def is_ready(self) -> bool:
        return all(ready.exists() for _, _, ready in self.workers)

    def end(self, number: int, how: signal.Signals) -> str:
        """Kill or drain a worker; return its service."""
        service, process, _ = self.workers.pop(number)
        process.send_signal(how)
        process.wait(60)
        return service

    def record(self, service: str) -> Path:
        return self.folder / f"runs-{service}"

    def close(self) -> None:
        for _, process, _ in self.workers:
            process.kill()
            process.wait()


@pytest.fixture
def chain(broker: RabbitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chain]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    started = Chain(broker, tmp_path)
    yield started
    started.close()
    for name in ("client", "glyphs", "overflow"):
        sys.modules.pop(name, None)


def test_every_image_is_read_once_while_workers_of_both_services_are_lost(
    chain: Chain, broker: RabbitServer
) -> None:
    client: Any = __import__("client")
    dice = random.Random(3)
    for service in (*SERVICES, *SERVICES):
        chain.start(service)
    wait_until(chain.is_ready)
    reader = client.Reader(broker.url)
    images = [client.sample(dice) for _ in range(REQUESTS)]
    with ThreadPoolExecutor(REQUESTS) as threads:
        replies = []
        for number, (image, _) in enumerate(images):
            replies.append(threads.submit(reader.read, image, 60.0))
            if number % 50 == 25:  # in the middle of a load: one is killed or drained, another one starts
                wait_until(chain.is_ready)
                how = signal.SIGKILL if number % 100 == 25 else signal.SIGTERM
                chain.start(chain.end(dice.randrange(len(chain.workers)), how))
        texts = [reply.result() for reply in replies]
    assert [text.text for text in texts] == [expected for _, expected in images]
    assert sum(reader.counts.values()) == REQUESTS
    reader.close()
    for service in SERVICES:
        assert run_recorder.read(chain.record(service)).unmarked_duplicates == 0


def test_the_second_service_runs_nothing_after_the_callers_deadline(
    chain: Chain, broker: RabbitServer
) -> None:
    client: Any = __import__("client")
    image, text = client.sample(random.Random(4))
    chain.start("pages")
    wait_until(chain.is_ready)
    reader = client.Reader(broker.url)
    started = time.monotonic()
    # No worker of the second service: the client's error, or that of the first service a moment before.
    with pytest.raises(WorkError, match="no reply in time"):
        reader.read(image, 1.5)
    assert time.monotonic() - started < 5.0
    chain.start("ocr")
    assert reader.read(image, 30.0).text == text
    reader.close()
    runs = chain.record("ocr").read_text().splitlines()
    assert len(runs) == len(text.splitlines())  # those of the second request only


def test_what_a_killed_worker_holds_is_read_by_another(chain: Chain, broker: RabbitServer) -> None:
    client: Any = __import__("client")
    image, text = client.sample(random.Random(5))
    chain.start("pages")
    wait_until(chain.is_ready)
    with Client(broker.url, client.QUEUE) as requests:
        reply = requests.submit(image, timeout=60.0)
        wait_until(chain.record("pages").exists)  # it has sent the lines and waits for their text
        chain.end(0, signal.SIGKILL)
        chain.start("pages")
        chain.start("ocr")
        assert reply.result()["text"] == text
        assert requests.unmatched_replies == 0
    runs = run_recorder.read(chain.record("pages"))
    assert (runs.repeated, runs.unmarked_duplicates) == (1, 0)


def test_without_workers_the_external_api_reads_and_its_failures_are_left_to_the_queue(
    chain: Chain, broker: RabbitServer
) -> None:
    client: Any = __import__("client")
    overflow: Any = __import__("overflow")
    port = free_port()
    api = subprocess.Popen(
        [sys.executable, "api_stand_in.py", str(port)],
        cwd=EXAMPLE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "packages" / "spot-work" / "src"), "OCR_MODEL": "numpy"},
    )
    try:
        external = overflow.ExternalApi(f"http://127.0.0.1:{port}/", "key", overflow.CallLimit(50))
        wait_until(lambda: works(external, overflow.ApiError))
        reader = client.Reader(broker.url, external, overflow_seconds=0.1)
        images = [client.sample(random.Random(number)) for number in range(10)]
        with ThreadPoolExecutor(10) as threads:  # one of ten calls fails
            replies = [threads.submit(reader.read, image, 60.0) for image, _ in images]
            wait_until(lambda: reader.counts["failed calls"] == 1)
            chain.start("pages")
            chain.start("ocr")
            texts = [reply.result() for reply in replies]
        reader.close()
    finally:
        api.kill()
        api.wait()
    assert [text.text for text in texts] == [expected for _, expected in images]
    assert reader.counts["external API"] == 9


def works(external: Any, error: type[Exception]) -> bool:
    """Whether the API has started: it fails at an image that is none."""
    try:
        external.read(b"P5 1 1 255\n\0")
    except error as failed:
        return "refused" not in str(failed)
    return True


def test_the_keras_model_reads_what_the_numpy_model_reads() -> None:
    script = (
        "import glyphs, numpy, recognise; texts = ['HELLO 0123', ''.join(glyphs.GLYPHS)];"
        "rows = [glyphs.draw([text], 1, 1, 0) for text in texts];"
        "pages = [numpy.frombuffer(r, numpy.uint8, offset=r.index(b'255') + 4) for r in rows];"
        "lines = [p.reshape(18, -1)[4:11, 4:-4].tobytes() for p in pages];"
        "assert recognise.read(lines) == texts, recognise.read(lines)"
    )
    variables = {"OCR_MODEL": "keras", "KERAS_BACKEND": "jax", "PYTHONPATH": str(EXAMPLE)}
    command = [environment("keras") / "python", "-c", script]
    subprocess.run(command, env={**os.environ, **variables}, check=True, timeout=300)
