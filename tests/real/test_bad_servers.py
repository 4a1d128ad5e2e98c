"""Servers that misbehave behind a real HAProxy: what callers get, row by row as docs/http.md says it."""

from __future__ import annotations

import collections
import contextlib
import http.client
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.real.http_play import play
from tests.real.http_play.play import HttpScript, HttpWorld
from tests.soak import chosen
from tests.waiting import wait_until

IDLE: Final = 10
PAGE: Final = Path(__file__).parents[2] / "docs" / "http.md"
SERVER: Final = Path(__file__).with_name("bad_server.py")


class Bad:
    """Two workers of one mode behind the proxies, and what callers got from the first."""

    def __init__(self, world: HttpWorld, folder: Path) -> None:
        self.world = world
        self._runs = folder / "runs"
        self.results: list[Any] = []
        self._threads: list[threading.Thread] = []

    def call(
        self, method: str = "GET", path: str = "/work", body: Any = None, **headers: str
    ) -> tuple[Any, float]:
        began = time.monotonic()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with contextlib.closing(
            http.client.HTTPConnection(*self.world.proxies[0].address, timeout=60)
        ) as connection:
            try:
                with contextlib.suppress(BrokenPipeError):  # the answer came before the end of the body
                    connection.request(method, path, body, named)
                response = connection.getresponse()
                response.read()
                status: Any = response.status
            except (OSError, http.client.HTTPException) as error:
                status = type(error).__name__
        self.results.append(status)
        return status, time.monotonic() - began

    def start(self, *args: Any, **headers: str) -> None:
        thread = threading.Thread(target=self.call, args=args, kwargs=headers)
        thread.start()
        self._threads.append(thread)

    def join(self) -> collections.Counter[Any]:
        for thread in self._threads:
            thread.join()
        return collections.Counter(self.results)

    @property
    def runs(self) -> list[str]:
        return self._runs.read_text().split() if self._runs.exists() else []


@contextlib.contextmanager
def bad(mode: str, hosts: int = 2, concurrency: int = 2) -> Iterator[Bad]:
    script = HttpScript(
        hosts=hosts,
        concurrency=concurrency,
        command=(sys.executable, str(SERVER)),
        variables=(("MODE", mode),),
        idle_timeout=IDLE,
    )
    with play.world(script) as (running, folder):
        yield Bad(running, folder)


def busy() -> None:
    """One request of 8 s at a time at each of two workers, six callers: each waits for its turn."""
    with bad("busy") as service:
        for _ in range(4):
            service.start()
            time.sleep(3.0)
        assert service.join() == {200: 4}


def stream() -> None:
    """A stream that is longer than ``idleTimeout`` and three checks, and callers behind it."""
    with bad("stream", hosts=1) as service:
        service.start()
        time.sleep(17.0)
        service.start()
        assert service.join() == {200: 2}


def hang() -> None:
    with bad("hang", hosts=2, concurrency=4) as service:
        status, seconds = service.call("GET", "/hang")
        assert status == 504
        assert seconds == pytest.approx(IDLE, abs=2)
        wait_until(lambda: service.world.proxies[0].count_ready() == 1, 60)
        assert {service.call()[0] for _ in range(5)} == {200}


def small_backlog() -> None:
    with bad("small backlog", concurrency=16) as service:
        for number in range(10):
            service.start("POST" if number % 2 else "GET")
        assert service.join() == {200: 10}


def early_refusal() -> None:
    with bad("early refusal") as service:
        assert service.call("POST", "/v1/x", b"x" * 20_000_000)[0] == 413


def slow_upload() -> None:
    def trickle() -> Iterator[bytes]:
        for _ in range(8):
            yield b"x" * 100
            time.sleep(IDLE / 10)

    with bad("slow upload") as service:
        for headers in ({}, {"Idempotency_Key": "k"}):
            assert service.call("POST", "/v1/x", trickle(), Content_Length="800", **headers)[0] == 200

        def too_slow() -> Iterator[bytes]:
            for _ in range(15):
                yield b"x" * 100
                time.sleep(IDLE / 10)

        assert service.call("POST", "/v1/x", too_slow(), Content_Length="1500")[0] == 200
        slow = service.call("POST", "/v1/x", too_slow(), Content_Length="1500", Idempotency_Key="k")
        assert slow[0] in (408, "BrokenPipeError", "ConnectionResetError")


def crash() -> None:
    with bad("crash", hosts=4, concurrency=4) as service:
        assert service.call("POST", "/crash", b"x", Idempotency_Key="k")[0] in (502, 503)
        assert len(service.runs) <= 3
        service.world.wait_ready(4)
        before = len(service.runs)
        assert service.call("POST", "/crash", b"x")[0] in (502, 503)
        assert len(service.runs) == before + 1


def errors() -> None:
    with bad("5xx") as service:
        assert {service.call("POST", "/v1/x", b"x", Idempotency_Key="k")[0] for _ in range(5)} == {500}
        assert len(service.runs) == 5


ROWS: Final[dict[str, Callable[[], None]]] = {
    "is busy, answers no check meanwhile": busy,
    "streams, answers nothing else meanwhile": stream,
    "accepts and never answers": hang,
    "has a small backlog": small_backlog,
    "refuses a large upload early": early_refusal,
    "is sent a body slowly": slow_upload,
    "crashes on one input": crash,
    "answers 5xx at once": errors,
}
SHORT: Final = ("refuses a large upload early", "crashes on one input", "answers 5xx at once")


@pytest.mark.parametrize("row", chosen(ROWS, *SHORT))
def test_a_caller_gets_what_the_guide_says(row: str) -> None:
    ROWS[row]()


def test_the_guide_has_a_row_for_each() -> None:
    table = PAGE.read_text().partition("| the server |")[2].partition("\n\n")[0]
    assert [line.split("|")[1].strip() for line in table.splitlines()[2:]] == list(ROWS)
