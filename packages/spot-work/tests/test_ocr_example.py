"""The modules of examples/ocr-service without a broker: images, models, overflow."""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from spot_work import ExpiredError, QueueFullError, Request, WorkError

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "ocr-service"
MODULES = ("api_stand_in", "client", "glyphs", "overflow", "preprocess", "recognise")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Import modules of the example, for this test only."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setenv("OCR_MODEL", "numpy")

    def load(name: str) -> Any:
        module = __import__(name)
        if name == "recognise":
            monkeypatch.setattr(module, "NUMPY_SECONDS", 0.0)
        return module

    yield load
    for name in MODULES:
        sys.modules.pop(name, None)


def test_what_is_drawn_is_read_in_any_scale_and_color(example: Callable[[str], Any]) -> None:
    glyphs, recognise, cut = example("glyphs"), example("recognise"), example("preprocess").cut
    dice = random.Random(1)
    for scale in (1, 2, 3):
        for ink, paper in ((0, 255), (250, 20)):
            lines = ["".join(dice.sample([*glyphs.GLYPHS], 12)), "A B", "".join(glyphs.GLYPHS)]
            assert recognise.read(cut(glyphs.draw(lines, scale, ink, paper))) == lines


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (b"\x89PNG", "it starts with b'\\x89P'"),
        (b"P5 2 2 255\n\0\0\0", "2 x 2 pixels, as its header says, not 3"),
        (b"P5 2 2 255\n\0\0\0\0", "has no ink; send an image with text"),
    ],
)
def test_an_image_that_cannot_be_cut_is_the_callers_error(
    example: Callable[[str], Any], image: bytes, message: str
) -> None:
    [error] = example("preprocess").read([Request("1", image)])
    assert isinstance(error, ValueError)
    assert message in str(error)


@pytest.mark.parametrize("model", [None, "torch"])
def test_no_model_is_chosen_silently(
    example: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, model: str | None
) -> None:
    monkeypatch.delenv("OCR_MODEL")
    if model is not None:
        monkeypatch.setenv("OCR_MODEL", model)
    with pytest.raises(ValueError, match=f"OCR_MODEL must be keras or numpy, not {model or 'unset'}"):
        example("recognise")


class Lines:
    """A client of service 2 that replies to all but the lines in ``failing``."""

    def __init__(self, read: Callable[[list[bytes]], list[str]]) -> None:
        self.read = read
        self.timeouts: list[float] = []
        self.failing: set[int] = set()

    def submit(self, value: bytes, timeout: float) -> Future[str]:
        future: Future[str] = Future()
        self.timeouts.append(timeout)
        if len(self.timeouts) in self.failing:
            future.set_exception(ExpiredError("ocr: no reply in time"))
        else:
            future.set_result(self.read([value])[0])
        return future


def test_the_rest_of_the_deadline_goes_on_to_the_second_service(
    example: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    preprocess, glyphs = example("preprocess"), example("glyphs")
    lines = Lines(example("recognise").read)
    lines.failing = {3}
    monkeypatch.setattr(preprocess, "_lines", lambda: lines)
    monkeypatch.setenv(preprocess.WORKER, "office")
    late, now = glyphs.draw(["SOON", "LATE"]), time.time()
    requests = [Request("1", glyphs.draw(["ONE", "TWO"]), deadline=now + 7.0)]
    requests.append(Request("2", late, deadline=now + 3.0))
    answered, failed = preprocess.read(requests)
    assert answered == {"text": "ONE\nTWO", "worker": "office"}
    assert isinstance(failed, WorkError)  # an image is read whole or not at all
    assert lines.timeouts == pytest.approx([7.0, 7.0, 3.0, 3.0], abs=0.5)


def test_calls_are_limited_in_any_hour(example: Callable[[str], Any]) -> None:
    now = 0.0
    limit = example("overflow").CallLimit(2, lambda: now)
    assert [limit.take() for _ in range(3)] == [True, True, False]
    now = 3599.0
    assert not limit.take()
    now = 3600.0
    assert [limit.take() for _ in range(3)] == [True, True, False]
    with pytest.raises(ValueError, match="calls_per_hour must be 0 or more, not -1"):
        example("overflow").CallLimit(-1)


class Api:
    """A local external API; ``bodies`` are its next responses, empty: status 503."""

    def __init__(self) -> None:
        api = self
        self.bodies: list[bytes] = []
        self.keys: list[str | None] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                api.keys.append(self.headers["Authorization"])
                body = api.bodies.pop(0)
                self.send_response(200 if body else 503)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def api() -> Iterator[Api]:
    started = Api()
    yield started
    started.close()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"text": 1}'])
def test_an_api_that_fails_raises_one_error(example: Callable[[str], Any], api: Api, body: bytes) -> None:
    overflow = example("overflow")
    api.bodies.append(body)
    with pytest.raises(overflow.ApiError):
        overflow.ExternalApi(api.url, "k", overflow.CallLimit(1)).read(b"image")


def test_the_key_goes_to_https_only(example: Callable[[str], Any]) -> None:
    overflow = example("overflow")
    with pytest.raises(ValueError, match="https"):
        overflow.ExternalApi("http://api.example.org", "k", overflow.CallLimit(1))


class Queue:
    """A client of service 1 whose ``replies`` the test resolves."""

    def __init__(self, *_: object) -> None:
        self.replies: list[Future[Any]] = []
        self.error: Exception | None = None

    def submit(self, value: bytes, timeout: float) -> Future[Any]:
        future: Future[Any] = Future()
        self.replies.append(future)
        if self.error is not None:
            future.set_exception(self.error)
        return future


@pytest.fixture
def reader(example: Callable[[str], Any], api: Api, monkeypatch: pytest.MonkeyPatch) -> Any:
    client, overflow = example("client"), example("overflow")
    monkeypatch.setattr(client, "Client", Queue)
    return client.Reader("amqp://here", overflow.ExternalApi(api.url, "k", overflow.CallLimit(2), 1.0), 0.05)


def replied(reader: Any) -> Future[Any]:
    """Resolve the request that is sent next, once the API was called."""
    deadline = time.monotonic() + 10
    while not reader._client.replies and time.monotonic() < deadline:
        time.sleep(0.001)
    future: Future[Any] = reader._client.replies[-1]
    future.set_result({"text": "BY THE QUEUE", "worker": "i-1"})
    return future


def test_a_request_that_waits_too_long_goes_to_the_api_and_leaves_the_queue(reader: Any, api: Api) -> None:
    api.bodies.append(json.dumps({"text": "BY THE API"}).encode())
    text = reader.read(b"image", 30.0)
    assert (text.text, text.source) == ("BY THE API", "external API")
    assert reader._client.replies[0].cancelled()
    assert reader.counts == {"external API": 1}
    assert api.keys == ["Bearer k"]


def test_a_reply_in_time_costs_no_call(reader: Any) -> None:
    reader._overflow_seconds = 20.0
    threading.Thread(target=replied, args=(reader,)).start()
    assert reader.read(b"image", 30.0).source == "i-1"
    assert reader.counts == {"i-1": 1}


def test_the_queue_answers_what_the_api_does_not(reader: Any, api: Api) -> None:
    api.bodies.append(b"")
    reply: list[Any] = []
    reading = threading.Thread(target=lambda: reply.append(reader.read(b"image", 30.0)))
    reading.start()
    while not reader.counts["failed calls"]:
        time.sleep(0.001)
    replied(reader)
    reading.join()
    assert reply[0].source == "i-1"
    assert reader.counts == {"failed calls": 1, "i-1": 1}


def test_a_full_queue_is_no_reason_to_wait(reader: Any, api: Api) -> None:
    api.bodies.append(json.dumps({"text": "BY THE API"}).encode())
    reader._overflow_seconds = 20.0
    reader._client.error = QueueFullError("pages: queue full")
    assert reader.read(b"image", 30.0).source == "external API"


def test_a_workers_error_is_not_sent_to_the_api(reader: Any, api: Api) -> None:
    reader._client.error = WorkError("ValueError: an image without ink")
    with pytest.raises(WorkError, match="without ink"):
        reader.read(b"image", 30.0)
    assert not api.keys


def test_above_the_limit_a_request_stays_in_the_queue(reader: Any, api: Api) -> None:
    assert reader._api.limit.take()
    assert reader._api.limit.take()
    threading.Timer(0.2, replied, args=(reader,)).start()
    assert reader.read(b"image", 30.0).source == "i-1"
    assert reader.counts == {"calls over the limit": 1, "i-1": 1}
    assert not api.keys


def test_a_short_deadline_leaves_the_api_its_time(reader: Any, api: Api) -> None:
    api.bodies.append(json.dumps({"text": "BY THE API"}).encode())
    reader._overflow_seconds = 20.0
    started = time.monotonic()
    assert reader.read(b"image", 1.1).source == "external API"
    assert time.monotonic() - started < 1.0
